"""One line of figures after an answer."""

from app.session import Reply, Session
from decoding.events import FinishReason

_ENDINGS = {
    FinishReason.LENGTH: "cut at --max-tokens",
    FinishReason.CONTEXT: "the context is full",
    FinishReason.CANCELLED: "stopped",
}


def stats_line(session: Session, reply: Reply) -> str:
    """Measured figures only; acceptance is of drafted tokens."""
    statistics = reply.statistics
    parts = [f"{statistics.completion_tokens} tokens"]
    if statistics.decode_tokens_per_second is not None:
        parts.append(f"{statistics.decode_tokens_per_second:.1f} tok/s")
    if statistics.ttft_seconds is not None:
        parts.append(f"first after {statistics.ttft_seconds:.2f} s")
    drafting = session.drafting
    if statistics.steps == 0:
        pass
    elif drafting.drafter is None:
        parts.append("drafting off")
    elif statistics.acceptance is None:
        parts.append(f"{drafting.drafter.name} had nothing to propose")
    else:
        parts.append(
            f"{drafting.drafter.name}: {statistics.accepted} of {statistics.drafted} drafted "
            f"accepted, {statistics.tokens_per_step:.2f} tokens per step"
        )
    if reply.finish_reason is not None and reply.finish_reason in _ENDINGS:
        parts.append(_ENDINGS[reply.finish_reason])
    return f"[{' · '.join(parts)}]"
