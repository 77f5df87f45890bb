"""The line below an answer: its figures, and how it ended."""

from app.tui import wording
from app.tui.live import Live
from app.tui.wording import SEPARATOR, joined

_ON_PANEL = (" tok/s", " plain", "% drafted")
"""What the figures have in common that the panel shows."""


def live_line(live: Live) -> str:
    """Figures of the answer in progress."""
    metrics = live.metrics
    share = metrics.drafted_share if metrics is not None and metrics.drafted else None
    drafted = f"{wording.percent(share)} drafted" if share is not None else ""
    return joined([wording.rate(live.rate), live.comparison.words, drafted])


def without_panel_figures(ending: str) -> str:
    """An ending without the figures that the panel shows."""
    parts = ending.split(SEPARATOR)
    return joined(part for part in parts if not any(figure in part for figure in _ON_PANEL))
