"""Figures in words, used by every part of the screen."""

from app.engine.comparison import ENOUGH_TOKENS
from app.engine.engine_status import Loaded, where_it_runs
from app.engine.reply_metrics import ReplyMetrics
from app.engine.shapes import shape_shares
from decoding.events import FinishReason
from decoding.planning.parking import State
from decoding.sampling.lossy_rule import LOSSY
from decoding.shape import Shape

NONE = "-"
_SEPARATOR = " · "
_ENDINGS = {
    FinishReason.STOP: "",
    FinishReason.LENGTH: "cut at the longest answer allowed",
    FinishReason.CONTEXT: "the context is full",
    FinishReason.CANCELLED: "stopped",
}


def rate(value: float | None) -> str:
    """Tokens per second."""
    return NONE if value is None else f"{value:.1f} tok/s"


def against_plain(metrics: ReplyMetrics) -> str:
    """The speedup; empty if it was not measured, or over too few tokens to mean anything."""
    if metrics.speedup is None or metrics.completion_tokens < ENOUGH_TOKENS:
        return ""
    return f"{metrics.speedup:.2f}× plain"


def percent(value: float | None) -> str:
    """A share in per cent."""
    return NONE if value is None else f"{100 * value:.0f} %"


def size(count: float) -> str:
    """A number of bytes, with a unit."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def _shapes(metrics: ReplyMetrics) -> str:
    """Shares of steps by shape of draft; empty if every draft was linear."""
    drafted = {shape for shape, count in metrics.steps_by_shape.items() if count} - {Shape.NONE}
    return f"steps: {shape_shares(metrics.steps_by_shape)}" if drafted - {Shape.LINE} else ""


def state(metrics: ReplyMetrics | None, loaded: Loaded | None) -> str:
    """Whether drafting is on, parked or off, and the reason."""
    if metrics is not None:
        drafters = ", ".join(metrics.drafters) or "none"
        if metrics.state is State.ON:
            return f"drafting on ({drafters})"
        return (
            f"drafting {metrics.state}: {metrics.reason}"
            if metrics.reason
            else f"drafting {metrics.state}"
        )
    if loaded is None:
        return ""
    if loaded.drafters:
        return f"drafting on ({', '.join(loaded.drafters)})"
    return f"drafting off: {loaded.missing}" if loaded.missing else "drafting off"


def what_runs(loaded: Loaded) -> str:
    """The model, its engine and its device, in one line."""
    info = loaded.info
    name = info.path.stem
    quantization = "" if info.quantization.lower() in name.lower() else f" {info.quantization}"
    return f"{name}{quantization} · {where_it_runs(info)}"


def lossy_part(ending: str) -> str:
    """The part of an ending that names a lossy rule; empty if there is none."""
    return _SEPARATOR.join(part for part in ending.split(_SEPARATOR) if part.startswith(LOSSY))


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
    parts: list[str] = [lossy_part(continued or "")]
    if metrics is not None and metrics.completion_tokens:
        parts.append(
            f"{'' if continued is None else 'the last '}{metrics.completion_tokens} tokens"
        )
        if metrics.decode_tokens_per_second is not None:
            parts.append(rate(metrics.decode_tokens_per_second))
        if metrics.drafted:
            is_short = metrics.completion_tokens < ENOUGH_TOKENS
            parts.append("too short for a speedup" if is_short else against_plain(metrics))
            parts.append(f"{percent(metrics.acceptance)} of drafted accepted")
        if metrics.lossy not in parts:
            parts.append(metrics.lossy)
        if metrics.ttft_seconds is not None:
            parts.append(f"first after {metrics.ttft_seconds:.1f} s")
        parts.append(_shapes(metrics))
    if reason is not None and _ENDINGS[reason]:
        parts.append(_ENDINGS[reason])
    if error:
        parts.append(error)
    return _SEPARATOR.join(filter(None, parts))
