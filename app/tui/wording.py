"""Figures in words, the same ones on every screen and on the command line."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size

from app.ahead.expected import AheadState
from app.engine.metrics import ReplyMetrics
from app.printable import one_line
from app.settings.catalogue import SWITCHED_OFF
from app.wording import CONTINUES, SEPARATOR, counted, percentage
from backends.base import SpecchatError
from decoding.events import FinishReason, Shortfall, State
from decoding.sampling.settings import LOSSY, LossyRule


def longest_fitting(versions: Sequence[str], width: int) -> str:
    """The first version that fits; the last one, with an ellipsis, if none does."""
    fitting = (text for text in versions if cell_len(text) <= width)
    return next(fitting, ellipsised(versions[-1], width))


def ellipsised(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1).rstrip()}…" if width > 0 else ""


_CONTEXT_OPTION, _CONTEXT_COMMAND = "--ctx", "/context"


def remedy_here(error: SpecchatError) -> str:
    """What helps, with the app's own commands in place of command-line options."""
    if not sets_context(error):
        return error.remedy
    remedy = error.remedy.replace(_CONTEXT_OPTION, _CONTEXT_COMMAND).rstrip(".")
    return f"{remedy}; F8 changes it too."


def sets_context(error: SpecchatError) -> bool:
    return _CONTEXT_OPTION in error.remedy


INTERRUPTED = f"interrupted{SEPARATOR}{CONTINUES}"
"""Shown below an answer without an ending that does not grow."""

CONTEXT_FULL = "the context is full"

_LONGEST_TITLE = 40
"""Cells of a title within a sentence."""

_FEW_AHEAD = 100
"""Tokens of a prompt that are read so soon that nobody waits for them. A guess; not measured."""

_LAST_TOKENS = 16
"""Tokens of a conversation that may be left to the reply: too few to be read by themselves."""

_SLOW_START = 2.0
"""Seconds before the first token from which they are worth telling."""


def read_ahead(state: AheadState | None, *, is_typing: bool) -> list[str]:
    """How much of the next question is read, in ever shorter versions; empty if not worth telling.

    What is complete is told only while something is typed.
    """
    if state is None or state.paused or state.read <= 0 or state.total < _FEW_AHEAD:
        return []
    if state.total - state.read < _LAST_TOKENS and not is_typing:
        return []
    share = percent(state.read / state.total)
    return [f"read {state.read:,} of {state.total:,}", f"read {share}"]


def not_read_ahead(state: AheadState | None) -> list[str]:
    """Why the next question is not read; empty if it is, or is not wanted to be."""
    if state is None or state.paused in ("", SWITCHED_OFF):
        return []
    is_read = state.total >= _FEW_AHEAD and state.total - state.read < _LAST_TOKENS
    return [] if is_read else [f"not reading ahead: {one_line(state.paused)}"]


def quoted_title(title: str) -> str:
    """The title of a chat within a sentence; a long one is cut."""
    return f"“{ellipsised(one_line(title) or 'untitled', _LONGEST_TITLE)}”"


def rate(value: float | None) -> str:
    """Tokens per second: whole numbers from 10 on; empty if not measured, or before a token."""
    if value is None or value < 0.05:
        return ""
    return f"{value:,.0f} tok/s" if value >= 9.95 else f"{value:.1f} tok/s"


def seconds(value: float) -> str:
    if value < 99.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s"


def percent(value: float) -> str:
    return f"{percentage(round(1e6 * value), 1_000_000)} %"


def drafting(spec: str, metrics: ReplyMetrics | None, rule: LossyRule | None) -> str:
    """What becomes of drafting, such as "auto", "off" or "paused (11 % accepted, needs 22 %)".

    spec: the requested drafters. metrics: of the newest answer by them; None before it has any.
    rule: the lossy rule in effect, if any.
    """
    if spec == "off":
        return "off"
    if rule is not None:
        return "▲ lossy"
    if metrics is not None and metrics.state is State.OFF:
        return "off"
    if metrics is not None and metrics.state is State.PAUSED:
        return f"paused{_because(metrics.shortfall)}"
    return one_line(spec)


def _because(shortfall: Shortfall | None) -> str:
    if shortfall is None:
        return ""
    accepted, needed = percent(shortfall.accepted), percent(shortfall.needed)
    return "" if accepted == needed else f" ({accepted} accepted, needs {needed})"


def lossy_part(ending: str) -> str:
    return joined(part for part in ending.split(SEPARATOR) if part.startswith(LOSSY))


def ending(
    metrics: ReplyMetrics | None,
    reason: FinishReason | None,
    error: str = "",
    continued: str | None = None,
) -> str:
    """The line below an answer: its figures and how it ended.

    continued: the ending of the answer that this one continues, which may have been lossy; None for
    a new answer. The figures are those of the continuation.
    """
    tokens = metrics.completion_tokens if metrics else 0
    told = counted(tokens, "token" if continued is None else "more token")
    is_known = tokens or metrics is None or metrics.told_by_server is None
    end = _end(reason, told if is_known else "")
    figures = _speed(metrics) if end and metrics else _figures(metrics, continued)
    lossy = lossy_part(continued or "")
    own = metrics.lossy if metrics else ""
    return joined([lossy, *figures, own if own != lossy else "", end, error])


def drafted(metrics: ReplyMetrics) -> str:
    """The share of an answer that drafters supplied; empty if nothing was drafted."""
    if not metrics.drafted or metrics.drafted_share is None:
        return ""
    return f"{percent(metrics.drafted_share)} drafted"


def stats(metrics: ReplyMetrics) -> str:
    """Figures of an answer for the command line."""
    return joined([*_figures(metrics, None), metrics.lossy])


def _figures(metrics: ReplyMetrics | None, continued: str | None) -> list[str]:
    if metrics is None or not metrics.completion_tokens:
        return []
    last = "" if continued is None else "the last "
    took = metrics.decode_seconds
    time = seconds(took) if took else ""
    return [f"{last}{counted(metrics.completion_tokens, 'token')}", time, *_speed(metrics)]


def _speed(metrics: ReplyMetrics) -> list[str]:
    first = metrics.ttft_seconds or 0.0
    budget = metrics.thinking_ended_at
    return [
        rate(metrics.decode_tokens_per_second),
        metrics.comparison.words,
        drafted(metrics),
        f"started after {first:.0f} s" if first > _SLOW_START else "",
        f"thinking ended at {counted(budget, 'token')}" if budget else "",
    ]


def _end(reason: FinishReason | None, tokens: str) -> str:
    """How an answer ended if not by itself, after how many tokens, and how it is continued.

    tokens: "" where they are not known.
    """
    match reason:
        case FinishReason.LENGTH:
            return joined([f"cut at {tokens}" if tokens else "cut", CONTINUES])
        case FinishReason.CANCELLED:
            return joined([f"stopped after {tokens}" if tokens else "stopped", CONTINUES])
        case FinishReason.CONTEXT:
            return CONTEXT_FULL
        case _:
            return ""


def fault(error: SpecchatError) -> str:
    """An error in the prompt's frame: phrases without a full stop, as in every title."""
    return joined([error.summary, error.remedy.removesuffix(".")])


def joined(parts: Iterable[str]) -> str:
    """Parts in one line; empty ones are left out."""
    return SEPARATOR.join(filter(None, parts))
