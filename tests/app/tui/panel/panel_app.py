"""The panel in its place on a screen, with a store that tests fill."""

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.containers import Container
from textual.widgets import Static

from app.engine.metrics import Comparison, ReplyMetrics, Standing
from app.settings.start import Preferences
from app.tui.look import BREAKPOINTS, register_themes
from app.tui.panel.panel import Panel
from app.tui.store import Live, Second, Store
from decoding.telemetry import DrafterStatistics
from tests.fixtures.metrics import LIVE

METRICS = replace(
    LIVE,
    decode_tokens_per_second=14.2,
    by_drafter={
        "lookup": DrafterStatistics(12, 74, 62, 0.01),
        "retrieval": DrafterStatistics(1, 2, 0, 0.01),
        "ngram": DrafterStatistics(8, 16, 5, 0.01),
    },
    drafted_share=0.58,
    cached_prompt_tokens=740,
    ahead_tokens=700,
)
MINUTE = tuple(
    Second(10 + 5 * abs(second % 20 - 10) / 10, "lookup" if second % 20 < 10 else "ngram")
    for second in range(60)
)


def live(metrics: ReplyMetrics = METRICS, comparison: Comparison = METRICS.comparison) -> Live:
    """Figures of an answer at 14 tok/s."""
    return Live(
        replace(metrics, comparison=comparison),
        plain=10.1,
        minute=MINUTE,
        session=Comparison(Standing.FASTER, 1.123, 0.03),
        answers=24,
    )


class PanelApp(App[None]):
    """A chat screen of which only the panel is real."""

    AUTO_FOCUS = None
    HORIZONTAL_BREAKPOINTS = BREAKPOINTS
    CSS: ClassVar[str] = """
    #middle { height: 1fr; }
    .-wide #middle { layout: horizontal; }
    #chat { width: 1fr; height: 1fr; }
    #prompt { height: 3; border: round $primary; }
    """

    def __init__(self) -> None:
        super().__init__()
        register_themes(self)
        self.store = Store(Preferences(Path("settings.toml")))
        self.store.is_panel_shown = True
        self.panel = Panel(self.store)

    def compose(self) -> ComposeResult:
        yield Static("header")
        with Container(id="middle"):
            yield Static("chat", id="chat")
            yield self.panel
        yield Static("prompt", id="prompt")
