"""One line of figures below an answer."""

from app.engine.comparison import ENOUGH_TOKENS
from app.engine.reply import Reply
from app.engine.reply_metrics import ReplyMetrics, reply_metrics
from app.engine.session import Session
from decoding.events import FinishReason
from decoding.planning.parking import State

_ENDINGS = {
    FinishReason.LENGTH: "cut at --max-tokens",
    FinishReason.CONTEXT: "the context is full",
    FinishReason.CANCELLED: "stopped",
}


def stats_line(session: Session, reply: Reply) -> str:
    """Measured figures of a reply that ended, and how it ended if not by itself."""
    metrics = reply_metrics(session, reply)
    parts = [f"{metrics.completion_tokens} tokens"]
    if metrics.decode_tokens_per_second is not None:
        parts.append(f"{metrics.decode_tokens_per_second:.1f} tok/s")
    if metrics.drafted and metrics.speedup is not None:
        enough = metrics.completion_tokens >= ENOUGH_TOKENS
        parts.append(f"{metrics.speedup:.2f}× plain" if enough else "too short for a speedup")
    if metrics.ttft_seconds is not None:
        parts.append(f"first after {metrics.ttft_seconds:.2f} s")
    if metrics.steps > 0:
        parts.append(_drafting(metrics))
    if metrics.lossy:
        parts.append(metrics.lossy)
    if reply.finish_reason is not None and reply.finish_reason in _ENDINGS:
        parts.append(_ENDINGS[reply.finish_reason])
    return f"[{' · '.join(parts)}]"


def _drafting(metrics: ReplyMetrics) -> str:
    if not metrics.drafters:
        return "drafting off"
    if metrics.acceptance is None:
        parked = metrics.state is State.PARKED
        return f"parked: {metrics.reason}" if parked else "nothing drafted"
    drafted_by = [name for name, figures in metrics.by_drafter.items() if figures.steps]
    return (
        f"{','.join(drafted_by)}: {metrics.accepted} of {metrics.drafted} drafted "
        f"accepted, {metrics.tokens_per_step:.2f} tokens per step"
    )
