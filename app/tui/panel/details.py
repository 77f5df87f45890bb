"""The details behind the figures: accepted in a row, time, the memory limit, memory and steps."""

from app.engine.reply_metrics import ReplyMetrics
from app.printable import one_line
from app.tui import wording
from app.tui.panel.bar import bar
from app.tui.panel.headline import rate_number
from app.tui.panel.line import Line
from app.tui.panel.terms import ACCEPTED, IN_A_ROW, LIMIT, MEMORY, START, STEP, TIME, Term
from models.byte_sizes import short_size

_WIDE = 35
_ROWS = 4


def accepted_in_a_row(counts: tuple[int, ...]) -> list[Line]:
    """How many drafts had at least so many tokens accepted; counts: drafts by accepted tokens."""
    drafts = sum(counts)
    shares = [sum(counts[least:]) / drafts if drafts else 0.0 for least in range(1, _ROWS + 1)]
    rows = [
        f"{least} or more  {bar(share, 19)} {100 * share:.0f} %"
        for least, share in enumerate(shares, 1)
    ]
    title = f"Accepted in a row, of {drafts:,} draft{'' if drafts == 1 else 's'}"
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
        "█" * cells[0] + "▓" * cells[1] + "▒" * rest,
        f"model {model} %  drafters {drafters} %  rest {100 - model - drafters} %",
    )


def start(metrics: ReplyMetrics) -> Line:
    """When an answer began, and how much of its prompt was read before it was asked for."""
    first, held = metrics.ttft_seconds, metrics.cached_prompt_tokens
    if first is None:
        return Line.of("first token not measured", START)
    ready = f", {wording.tokens_in_words(held)} ready" if held else ""
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
    drafters = [Line.of(f"{'':8}drafters {short_size(memory.drafter_bytes)}", MEMORY)]
    drafts = sum(metrics.accepted_lengths)
    return [
        Line.of(f"Memory  {used}", MEMORY),
        *(drafters if memory.drafter_bytes else []),
        Line.of(f"Steps   {metrics.steps:,}, {drafts:,} of them with a draft", STEP),
        Line.of(f"Last    {one_line(metrics.last_draft) or 'no draft'}", ACCEPTED),
    ]


def _titled(title: str, term: Term, *rows: str) -> list[Line]:
    return [Line.of(title, term, "bold"), *(Line.of(row, term) for row in rows)]
