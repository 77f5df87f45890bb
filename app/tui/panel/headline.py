"""The three figures that come first: speed, gain over plain, and the drafted share."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Digits

from app.engine.comparison import Comparison, Standing
from app.engine.reply_metrics import ReplyMetrics
from app.tui.live import Live
from app.tui.panel import terms
from app.tui.panel.figure_row import FigureRow
from app.tui.panel.scale import finite
from decoding.planning.parking import State

_UNIT = "tok/s"
_LEAST_DIGITS_WIDTH = 9
_WORDS_WIDTH = 29


class Headline(Horizontal):
    """The figures beside the conversation; the speed is large."""

    DEFAULT_CSS: ClassVar[str] = """
    Headline { height: 4; }
    Headline > Digits { width: 9; height: 3; }
    Headline > Vertical { width: 1fr; height: 4; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._digits = Digits()
        self._width = _LEAST_DIGITS_WIDTH
        self._unit = FigureRow(terms.SPEED.sentence)
        self._gain = FigureRow(terms.GAIN.sentence)
        self._drafted = FigureRow(terms.DRAFTED.sentence)
        self._notice = FigureRow(terms.PAUSED.sentence)

    def compose(self) -> ComposeResult:
        yield self._digits
        yield Vertical(self._unit, self._gain, self._drafted, self._notice)

    def show(self, live: Live) -> None:
        """Show the figures of the newest answer."""
        number = rate_number(live.rate)
        if number != self._digits.value:
            self._make_room(number)
            self._digits.update(number)
        self._unit.show(_UNIT if number else "")
        self._gain.show(warned(gain(live.comparison, self._gain.size.width or _WORDS_WIDTH)))
        self._drafted.show(drafted(live.metrics))
        self._show_notice(live.metrics)

    def _make_room(self, number: str) -> None:
        """Widen the digits for a longer number; they stay so, and what is beside them stays put."""
        width = max(self._width, 3 * len(number))
        if width != self._width:
            self._width = width
            self._digits.styles.width = width

    def _show_notice(self, metrics: ReplyMetrics | None) -> None:
        is_lossy = metrics is not None and bool(metrics.lossy)
        is_paused = metrics is not None and metrics.state is State.PARKED
        self._notice.help_text = (terms.LOSSY if is_lossy else terms.PAUSED).sentence
        parts = ["drafting paused"] if is_paused else []
        if is_lossy:
            parts.insert(0, "▲ lossy")
        self._notice.show(warned(" · ".join(parts)))


class Summary(FigureRow):
    """The same figures in one row, above the prompt."""

    def __init__(self) -> None:
        super().__init__(terms.SPEED.sentence)
        self._live = Live()

    def on_resize(self) -> None:
        self.show_live(self._live)

    def show_live(self, live: Live) -> None:
        """Show as many of the figures as fit; the first ones first."""
        self._live = live
        number, share = rate_number(live.rate), drafted(live.metrics)
        is_lossy = live.metrics is not None and bool(live.metrics.lossy)
        first = [f"{number} {_UNIT}" if number else "", "▲ lossy" if is_lossy else ""]
        words = panel_words(live.comparison)
        for parts in (
            [*first, words, share],
            [*first, words, share.removesuffix(" drafted")],
            [*first, words],
        ):
            text = " · ".join(filter(None, parts))
            if len(text) <= self.size.width:
                break
        self.show(text)


def warned(text: str) -> Content:
    """A figure; in the colour of warnings if it begins with their sign."""
    return Content.styled(text, "$warning") if text.startswith("▲") else Content(text)


def rate_number(rate: float | None) -> str:
    """A rate without its unit: whole from 10 on, one decimal below; empty if there is none."""
    if rate is None or finite(rate) <= 0.0:
        return ""
    return f"{rate:.0f}" if rate >= 9.95 else f"{rate:.1f}"


def panel_words(comparison: Comparison) -> str:
    """The comparison in words; a short answer is said to be short."""
    if comparison.standing is Standing.SHORT:
        return "too short to compare"
    return comparison.words


def gain(comparison: Comparison, width: int) -> str:
    """The comparison, shortened where it does not fit."""
    words = panel_words(comparison)
    return words if len(words) <= width else words.replace(" than plain", "")


def drafted(metrics: ReplyMetrics | None) -> str:
    """The share of the answer that drafters supplied; empty if nothing was drafted."""
    if metrics is None or not metrics.drafted or metrics.drafted_share is None:
        return ""
    return f"{100 * metrics.drafted_share:.0f} % drafted"
