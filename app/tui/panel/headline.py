"""The three figures that come first: speed, gain over plain, and the drafted share."""

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.renderables.digits import Digits

from app.engine.reply_metrics import ReplyMetrics
from app.tui.live import Live
from app.tui.panel.line import Line
from app.tui.panel.scale import finite
from app.tui.panel.terms import DRAFTED, GAIN, LOSSY, PAUSED, SPEED
from app.tui.wording import percent

_UNIT = "tok/s"
_NO_STYLE = Style()


def headline(live: Live, digits_width: int, width: int) -> list[Line]:
    """Four lines: the speed in large digits, and beside it what it is and how it compares."""
    number, metrics = rate_number(live.rate), live.metrics
    words, _, pause = live.comparison.panel_words.partition(" · ")
    lossy = _lossy(metrics)
    rows = [
        (_UNIT if number else "", SPEED),
        (shortened(words, width - digits_width), GAIN),
        (drafted(metrics), DRAFTED),
        (" · ".join(filter(None, [lossy, pause])), LOSSY if lossy else PAUSED),
    ]
    return [
        Line(Content.assemble(digits.ljust(digits_width), warned(text)), term if text else None)
        for digits, (text, term) in zip(_digits(number), rows, strict=True)
    ]


def summary(live: Live, width: int) -> Line:
    """As many of the figures as fit one line; the first ones first."""
    number, share = rate_number(live.rate), drafted(live.metrics)
    first = [f"{number} {_UNIT}" if number else "", _lossy(live.metrics)]
    words = live.comparison.panel_words
    brief = words.partition(" · ")[0]
    choices = (
        [*first, words, share],
        [*first, words, share.removesuffix(" drafted")],
        [*first, brief, share],
        [*first, brief],
        [*first, brief.replace(" than plain", "")],
    )
    shown = ([warned(part) for part in parts if part] for parts in choices)
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


def drafted(metrics: ReplyMetrics | None) -> str:
    """The share of the answer that drafters supplied; empty if nothing was drafted."""
    if metrics is None or not metrics.drafted or metrics.drafted_share is None:
        return ""
    return f"{percent(metrics.drafted_share)} drafted"


def shortened(words: str, width: int) -> str:
    """A comparison without "than plain" where it is too long."""
    return words if len(words) <= width else words.replace(" than plain", "")


def _lossy(metrics: ReplyMetrics | None) -> str:
    return "▲ lossy" if metrics is not None and metrics.lossy else ""


def _digits(number: str) -> list[str]:
    """The three rows of large digits, and a blank one."""
    rows = [one for one in Digits(number).render(_NO_STYLE) if isinstance(one, Segment)]
    return [*(row.text for row in rows if row.text != "\n"), ""]


def warned(text: str) -> Content:
    """A figure; in the colour of warnings if it begins with their sign."""
    return Content.styled(text, "$warning") if text.startswith("▲") else Content(text)
