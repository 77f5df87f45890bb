"""One line of figures after an answer."""

from app.performance import ENOUGH_TOKENS, plain_rate
from app.reply import Reply
from app.session import Session
from decoding.events import FinishReason
from decoding.parking import State
from decoding.telemetry import Statistics

_ENDINGS = {
    FinishReason.LENGTH: "cut at --max-tokens",
    FinishReason.CONTEXT: "the context is full",
    FinishReason.CANCELLED: "stopped",
}


def stats_line(session: Session, reply: Reply) -> str:
    """Measured figures only; acceptance is of drafted tokens."""
    statistics = reply.statistics
    parts = [f"{statistics.completion_tokens} tokens"]
    rate = statistics.decode_tokens_per_second
    if rate is not None:
        parts.append(f"{rate:.1f} tok/s")
        plain, _ = plain_rate(session, statistics)
        if statistics.drafted and plain is not None:
            enough = statistics.completion_tokens >= ENOUGH_TOKENS
            parts.append(f"{rate / plain:.2f}× plain" if enough else "too short for a speedup")
    if statistics.ttft_seconds is not None:
        parts.append(f"first after {statistics.ttft_seconds:.2f} s")
    if statistics.steps > 0:
        parts.append(_drafting(session, statistics))
    if reply.lossy is not None:
        parts.append(reply.lossy.words)
    if reply.finish_reason is not None and reply.finish_reason in _ENDINGS:
        parts.append(_ENDINGS[reply.finish_reason])
    return f"[{' · '.join(parts)}]"


def _drafting(session: Session, statistics: Statistics) -> str:
    drafting = session.drafting
    if drafting.controller is None:
        return "drafting off"
    if statistics.acceptance is None:
        parked = drafting.state is State.PARKED
        return f"parked: {drafting.reason}" if parked else "nothing drafted"
    drafted_by = [name for name, one in statistics.by_drafter.items() if one.steps]
    return (
        f"{','.join(drafted_by)}: {statistics.accepted} of {statistics.drafted} drafted "
        f"accepted, {statistics.tokens_per_step:.2f} tokens per step"
    )
