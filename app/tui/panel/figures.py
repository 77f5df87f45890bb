"""The figures of an answer, line by line: headline, drafters, and the details behind them."""

from collections.abc import Mapping

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.renderables.digits import Digits

from app.engine.metrics import ReplyMetrics
from app.printable import one_line
from app.tui import wording
from app.tui.look import Kind, family_of, kind_of
from app.tui.panel.graph import (
    ACCEPTED,
    BLANK,
    DRAFTED,
    GAIN,
    IN_A_ROW,
    LIMIT,
    LOSSY,
    MEMORY,
    PAUSED,
    SPEED,
    START,
    STEP,
    TIME,
    Line,
    Term,
    drafter_term,
    finite,
    is_console,
)
from app.tui.store import Live
from app.tui.wording import counted, drafted
from decoding.telemetry import DrafterStatistics
from models.byte_sizes import short_size


def bar(share: float, width: int, style: str = "") -> Content:
    """A share between 0 and 1 as a heavy line, and the rest of the width as a light one."""
    full = round(width * min(max(share, 0.0), 1.0))
    heavy = ("█" if is_console() else "━") * full
    return Content.assemble((heavy, style), ("─" * (width - full), "$border-blurred"))


_NAME_WIDTH = 10
_BAR_WIDTH = 10


def drafter_lines(by_drafter: Mapping[str, DrafterStatistics]) -> list[Line]:
    """A line for each drafter of the answer, the one with the most accepted tokens first."""
    names = sorted(by_drafter, key=lambda name: -by_drafter[name].accepted)
    return [_line(name, by_drafter[name]) for name in names]


def first_drafter(by_drafter: Mapping[str, DrafterStatistics]) -> str:
    """The drafter with the most accepted tokens; empty if there is none."""
    return max(by_drafter, key=lambda name: by_drafter[name].accepted, default="")


def _line(name: str, figures: DrafterStatistics) -> Line:
    share = figures.accepted / figures.drafted if figures.drafted else 0.0
    count = f"{figures.accepted:,} of {figures.drafted:,}"
    hue = kind_of(name).hue
    shown = ("■", hue), f" {_short(name)} ", bar(share, _BAR_WIDTH, hue), f"{count:>15}"
    return Line(Content.assemble(*shown), drafter_term(name))


def _short(drafter: str) -> str:
    name = one_line(family_of(drafter))
    if cell_len(name) > _NAME_WIDTH:
        return set_cell_size(name, _NAME_WIDTH - 1) + "…"
    return set_cell_size(name, _NAME_WIDTH)


_MEANINGS = (
    (Kind.LOOKUP, "lookup", "copies from this chat"),
    (Kind.RETRIEVAL, "retrieval", "copies from other chats"),
    (Kind.NGRAM, "ngram", "common phrases"),
    (Kind.MODEL, "a model", "a smaller model guesses"),
)


def legend() -> list[Line]:
    """Each kind of drafter with its hue and where it gets text from."""
    return [
        Line.of("Drafts are guesses that the model"),
        Line.of("checks. Text that was drafted is"),
        Line.of("coloured while it is new:"),
        BLANK,
        *(
            Line(Content.assemble(("■", kind.hue), f" {name:<11}{meaning}"), drafter_term(name))
            for kind, name, meaning in _MEANINGS
        ),
    ]


_UNIT = "tok/s"


def headline(live: Live, digits_width: int, width: int) -> list[Line]:
    """Four lines: the speed in large digits, and beside it what it is and how it compares."""
    number, metrics = rate_number(live.rate), live.metrics
    words, _, pause = live.comparison.panel_words.partition(" · ")
    lossy = _lossy(metrics)
    rows = [
        (_UNIT if number else "", SPEED),
        (shortened(words, width - digits_width), GAIN),
        (drafted(metrics) if metrics else "", DRAFTED),
        (" · ".join(filter(None, [lossy, pause])), LOSSY if lossy else PAUSED),
    ]
    return [
        Line(Content.assemble(digits.ljust(digits_width), warned(text)), term if text else None)
        for digits, (text, term) in zip(_digits(number), rows, strict=True)
    ]


def summary(live: Live, width: int) -> Line:
    """As many of the figures as fit one line; the first ones first."""
    number = rate_number(live.rate)
    share = drafted(live.metrics) if live.metrics else ""
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


def shortened(words: str, width: int) -> str:
    """A comparison without "than plain" where it is too long."""
    return words if len(words) <= width else words.replace(" than plain", "")


def _lossy(metrics: ReplyMetrics | None) -> str:
    return "▲ lossy" if metrics is not None and metrics.lossy else ""


def _digits(number: str) -> list[str]:
    rows = [one for one in Digits(number).render(Style()) if isinstance(one, Segment)]
    return [*(row.text for row in rows if row.text != "\n"), ""]


def warned(text: str) -> Content:
    """A figure; in the colour of warnings if it begins with their sign."""
    return Content.styled(text, "$text-warning") if text.startswith("▲") else Content(text)


_WIDE = 35
_MOST_TOLD = 6
_ROWS = 4


def accepted_in_a_row(counts: tuple[int, ...]) -> list[Line]:
    """How many drafts had at least so many tokens accepted; counts: drafts by accepted tokens."""
    drafts = sum(counts)
    shares = [sum(counts[least:]) / drafts if drafts else 0.0 for least in range(1, _ROWS + 1)]
    rows = [
        Content.assemble(f"{least} or more  ", bar(share, 19), f"{100 * share:>4.0f} %")
        for least, share in enumerate(shares, 1)
    ]
    title = f"Accepted in a row, of {counted(drafts, 'draft')}"
    return _titled(title, IN_A_ROW, *rows)


def time_spent(metrics: ReplyMetrics) -> list[Line]:
    """The parts of the model, the drafters and the rest in the time of the answer."""
    seconds = metrics.verify_seconds, metrics.draft_seconds, metrics.overhead_seconds or 0.0
    total = sum(seconds)
    if total <= 0.0:
        return _titled("Where the time went", TIME, "not measured", "")
    model, drafters = (round(100 * part / total) for part in seconds[:2])
    cells = [round(_WIDE * part / total) for part in seconds[:2]]
    rest = _WIDE - sum(cells)
    return _titled(
        "Where the time went",
        TIME,
        Content.assemble("━" * cells[0], "╍" * cells[1], ("─" * rest, "$border-blurred")),
        f"model {model} %  drafters {drafters} %  rest {100 - model - drafters} %",
    )


def start(metrics: ReplyMetrics) -> Line:
    """When an answer began, and how much of its prompt was read before it was asked for."""
    first, held = metrics.ttft_seconds, metrics.cached_prompt_tokens
    if first is None:
        return Line.of("first token not measured", START)
    ready = f", {counted(held, 'token')} ready" if held else ""
    return Line.of(f"first token {wording.seconds(first)}{ready}", START)


def memory_limit(metrics: ReplyMetrics) -> list[Line]:
    """Plain speed as a part of what the memory's bandwidth, or the disk that is read, allows."""
    limited_by = "disk" if metrics.model.streamed_bytes_per_token else "memory"
    title = f"Plain speed, and the {limited_by} limit"
    plain, limit = metrics.plain_tokens_per_second, metrics.wall_tokens_per_second
    if not plain or not limit or plain > limit:  # measured while the machine was busier
        return _titled(title, LIMIT, "not measured", "")
    return _titled(
        title,
        LIMIT,
        bar(plain / limit, _WIDE),
        f"{rate_number(plain)} of {rate_number(limit)} tok/s",
    )


def counts(metrics: ReplyMetrics) -> list[Line]:
    """Memory, steps, and what became of the last draft; the drafters' memory, if any, below."""
    memory = metrics.memory
    used = f"model {short_size(memory.target_bytes)}, chat {short_size(memory.kv_bytes)}"
    label = "" if memory.target_bytes else "Memory"  # of a model elsewhere nothing is here
    drafters = [Line.of(f"{label:8}drafters {short_size(memory.drafter_bytes)}", MEMORY)]
    drafts = sum(metrics.accepted_lengths)
    return [
        *([Line.of(f"Memory  {used}", MEMORY)] if memory.target_bytes else []),
        *(drafters if memory.drafter_bytes else []),
        Line.of(f"Steps   {metrics.steps:,}, {drafts:,} of them with a draft", STEP),
        Line.of(f"Last    {one_line(metrics.last_draft) or 'no draft'}", ACCEPTED),
    ]


def told(figures: Mapping[str, float], *, has_ended: bool) -> list[Line]:
    """What a server tells of its drafting, by its own names, mostly at the end of an answer."""
    rows = [f"{one_line(name.rpartition('.')[2])} {value:g}" for name, value in figures.items()]
    title = "What the server tells of drafting"
    nothing = "nothing" if has_ended else "nothing before an answer ends"
    return _titled(title, DRAFTED, *(rows[:_MOST_TOLD] or [nothing]))


def _titled(title: str, term: Term, *rows: str | Content) -> list[Line]:
    lines = (row if isinstance(row, Content) else Content(row) for row in rows)
    return [Line.of(title, term, "bold"), *(Line(line, term) for line in lines)]
