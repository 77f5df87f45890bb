"""The three figures that come first: speed, gain over plain, and the drafted share."""

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.renderables.digits import Digits

from app.engine.comparison import Comparison, Standing
from app.engine.reply_metrics import ReplyMetrics
from app.tui.live import Live
from app.tui.panel.line import Line
from app.tui.panel.scale import finite
from app.tui.panel.terms import DRAFTED, GAIN, LOSSY, PAUSED, SPEED
from decoding.planning.parking import State

_UNIT = "tok/s"
_LOSSY = "▲ lossy"
_PAUSED = "drafting paused"
_NO_STYLE = Style()


def headline(live: Live, digits_width: int, width: int) -> list[Line]:
    """Four lines: the speed in large digits, and beside it what it is and how it compares."""
    number, metrics = rate_number(live.rate), live.metrics
    is_lossy, is_paused = _is_lossy(metrics), metrics is not None and metrics.state is State.PARKED
    notice = " · ".join(filter(None, [_LOSSY * is_lossy, _PAUSED * is_paused]))
    rows = [
        (_UNIT if number else "", SPEED),
        (_gain(live.comparison, width - digits_width), GAIN),
        (drafted(metrics), DRAFTED),
        (notice, LOSSY if is_lossy else PAUSED),
    ]
    return [
        Line(Content.assemble(digits.ljust(digits_width), _warned(text)), term if text else None)
        for digits, (text, term) in zip(_digits(number), rows, strict=True)
    ]


def summary(live: Live, width: int) -> Line:
    """As many of the figures as fit one line; the first ones first."""
    number, share = rate_number(live.rate), drafted(live.metrics)
    first = [f"{number} {_UNIT}" if number else "", _LOSSY if _is_lossy(live.metrics) else ""]
    words = panel_words(live.comparison)
    choices = (
        [*first, words, share],
        [*first, words, share.removesuffix(" drafted")],
        [*first, words],
        [*first, words.replace(" than plain", "")],
    )
    shown = ([_warned(part) for part in parts if part] for parts in choices)
    lines = [Content(" · ").join(parts) for parts in shown]
    text = next((line for line in lines if line.cell_length <= width), lines[-1])
    return Line(text, SPEED if text.plain else None)


def digits_width(rate: float | None) -> int:
    """Columns of a rate in large digits, with room beside it; at least as for two digits."""
    return 3 * max(len(rate_number(rate)), 2) + 3


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


def drafted(metrics: ReplyMetrics | None) -> str:
    """The share of the answer that drafters supplied; empty if nothing was drafted."""
    if metrics is None or not metrics.drafted or metrics.drafted_share is None:
        return ""
    return f"{100 * metrics.drafted_share:.0f} % drafted"


def _gain(comparison: Comparison, width: int) -> str:
    words = panel_words(comparison)
    return words if len(words) <= width else words.replace(" than plain", "")


def _is_lossy(metrics: ReplyMetrics | None) -> bool:
    return metrics is not None and bool(metrics.lossy)


def _digits(number: str) -> list[str]:
    """The three rows of large digits, and a blank one."""
    rows = [one for one in Digits(number).render(_NO_STYLE) if isinstance(one, Segment)]
    return [*(row.text for row in rows if row.text != "\n"), ""]


def _warned(text: str) -> Content:
    """A figure; in the colour of warnings if it begins with their sign."""
    return Content.styled(text, "$warning") if text.startswith("▲") else Content(text)
