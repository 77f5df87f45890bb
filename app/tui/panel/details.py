"""The details behind the figures: accepted in a row, time, the memory limit, memory and steps."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalGroup
from textual.content import Content

from app.engine.reply_metrics import ReplyMetrics
from app.printable import one_line
from app.tui.panel import terms
from app.tui.panel.bar import bar
from app.tui.panel.figure_row import FigureRow
from app.tui.panel.headline import rate_number
from models.byte_sizes import short_size

_WIDE = 35
_ROWS = 4


class Details(VerticalGroup):
    """Figures of the newest answer that explain its speed."""

    DEFAULT_CSS: ClassVar[str] = """
    Details FigureRow { width: 38; }
    Details .lengths { height: 6; }
    Details .bars { height: 4; }
    Details .memory { height: 1; }
    Details .memory.-drafters { height: 2; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._lengths = FigureRow(terms.IN_A_ROW.sentence, classes="lengths")
        self._time = FigureRow(terms.TIME.sentence, classes="bars")
        self._limit = FigureRow(terms.LIMIT.sentence, classes="bars")
        self._memory = FigureRow(terms.MEMORY.sentence, classes="memory")
        self._steps = FigureRow(terms.STEP.sentence)
        self._last = FigureRow(terms.ACCEPTED.sentence)

    def compose(self) -> ComposeResult:
        with VerticalGroup():
            yield self._lengths
        with VerticalGroup():
            yield self._time
            yield self._limit
        with VerticalGroup():
            yield self._memory
            yield self._steps
            yield self._last

    def show(self, metrics: ReplyMetrics | None) -> None:
        """Show the figures; blank without any."""
        if metrics is None:
            for row in self.query(FigureRow):
                row.show("")
            return
        self._lengths.show(_lengths(metrics.accepted_lengths))
        self._time.show(_time(metrics))
        self._limit.show(_limit(metrics))
        self._memory.set_class(bool(metrics.memory.drafter_bytes), "-drafters")
        self._memory.show(_memory(metrics))
        self._steps.show(_steps(metrics))
        self._last.show(_last(metrics))


def _titled(title: str, *lines: str) -> Content:
    return Content("\n").join([Content.styled(title, "bold"), *map(Content, lines)])


def _lengths(counts: tuple[int, ...]) -> Content:
    """How many drafts had at least so many tokens accepted; counts: drafts by accepted tokens."""
    drafts = sum(counts)
    if not drafts:
        return _titled("Accepted in a row", "nothing was drafted")
    shares = [sum(counts[least:]) / drafts for least in range(1, _ROWS + 1)]
    rows = [
        f"{least} or more  {bar(share, 19)} {100 * share:.0f} %"
        for least, share in enumerate(shares, 1)
    ]
    return _titled(f"Accepted in a row, of {drafts:,} draft{'s' if drafts > 1 else ''}", *rows)


def _time(metrics: ReplyMetrics) -> Content:
    seconds = metrics.verify_seconds, metrics.draft_seconds, metrics.overhead_seconds or 0.0
    total = sum(seconds)
    if total <= 0.0:
        return _titled("Where the time went", "not measured")
    model, drafters = (round(100 * part / total) for part in seconds[:2])
    cells = [round(_WIDE * part / total) for part in seconds[:2]]
    rest = _WIDE - sum(cells)
    return _titled(
        "Where the time went",
        "█" * cells[0] + "▓" * cells[1] + "▒" * rest,
        f"model {model} %  drafters {drafters} %  rest {100 - model - drafters} %",
    )


def _limit(metrics: ReplyMetrics) -> Content:
    title = "Plain speed, and the memory limit"
    plain, limit = metrics.plain_tokens_per_second, metrics.wall_tokens_per_second
    if not plain or not limit:
        return _titled(title, "not measured")
    return _titled(
        title, bar(plain / limit, _WIDE), f"{rate_number(plain)} of {rate_number(limit)} tok/s"
    )


def _memory(metrics: ReplyMetrics) -> str:
    memory = metrics.memory
    text = f"Memory  model {short_size(memory.target_bytes)}, chat {short_size(memory.kv_bytes)}"
    if memory.drafter_bytes:
        text += f"\n        drafters {short_size(memory.drafter_bytes)}"
    return text


def _steps(metrics: ReplyMetrics) -> str:
    return f"Steps   {metrics.steps:,}, {sum(metrics.accepted_lengths):,} of them with a draft"


def _last(metrics: ReplyMetrics) -> str:
    return f"Last    {one_line(metrics.last_draft) or 'no draft'}"
