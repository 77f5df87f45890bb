"""Figures in words, the same on every part of the screen."""

from app.engine_status import Loaded, where_it_runs
from app.reply_metrics import ReplyMetrics
from app.shapes import shape_shares
from decoding.events import FinishReason
from decoding.lossy_rule import LOSSY
from decoding.parking import State
from decoding.shape import Shape

NONE = "-"
_BETWEEN = " · "
_ENDINGS = {
    FinishReason.STOP: "",
    FinishReason.LENGTH: "cut at the longest answer allowed",
    FinishReason.CONTEXT: "the context is full",
    FinishReason.CANCELLED: "stopped",
}


def rate(value: float | None) -> str:
    """Tokens per second."""
    return NONE if value is None else f"{value:.1f} tok/s"


def against_plain(speedup: float | None) -> str:
    """The speedup; empty where it was not measured."""
    return "" if speedup is None else f"{speedup:.2f}× plain"


def percent(value: float | None) -> str:
    """A share."""
    return NONE if value is None else f"{100 * value:.0f} %"


def size(count: float) -> str:
    """Bytes for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def _shapes(metrics: ReplyMetrics) -> str:
    """Shares of steps, where not every draft was a line."""
    drafted = {shape for shape, count in metrics.steps_by_shape.items() if count} - {Shape.NONE}
    return f"steps: {shape_shares(metrics.steps_by_shape)}" if drafted - {Shape.LINE} else ""


def state(metrics: ReplyMetrics | None, loaded: Loaded | None) -> str:
    """Whether drafting is on, parked or off, and why."""
    if metrics is not None:
        drafters = ", ".join(metrics.drafters) or "none"
        if metrics.state is State.ON:
            return f"drafting on ({drafters})"
        return ": ".join(filter(None, [f"drafting {metrics.state}", metrics.reason]))
    if loaded is None:
        return ""
    if loaded.drafters:
        return f"drafting on ({', '.join(loaded.drafters)})"
    return f"drafting off: {loaded.missing}" if loaded.missing else "drafting off"


def what_runs(loaded: Loaded) -> str:
    """One line: the model, the engine, the device."""
    info = loaded.info
    name = info.path.stem
    quantization = "" if info.quantization.lower() in name.lower() else f" {info.quantization}"
    return f"{name}{quantization} · {where_it_runs(info)}"


def lossy_part(ending: str) -> str:
    """What the line below an answer says of a lossy rule; empty where it says nothing."""
    return _BETWEEN.join(part for part in ending.split(_BETWEEN) if part.startswith(LOSSY))


def ending(
    metrics: ReplyMetrics | None,
    reason: FinishReason | None,
    error: str = "",
    begun: str | None = None,
) -> str:
    """The line below an answer: its figures and how it ended.

    begun: the same line of the answer that it goes on with, which may have been lossy; None where
    it begins anew. Figures are then of what was added.
    """
    parts: list[str] = [lossy_part(begun or "")]
    if metrics is not None and metrics.completion_tokens:
        parts.append(f"{'' if begun is None else 'the last '}{metrics.completion_tokens} tokens")
        if metrics.decode_tokens_per_second is not None:
            parts.append(rate(metrics.decode_tokens_per_second))
        if metrics.drafted:
            parts.append(against_plain(metrics.speedup))
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
    return _BETWEEN.join(filter(None, parts))
