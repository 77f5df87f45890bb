"""The figures of a reply while it grows, as one frozen picture that any thread may read."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.performance import performance
from app.reply import Reply
from app.session import Session
from backends.base import ModelInfo
from decoding.events import Step
from decoding.parking import State
from decoding.shape import Shape, in_words


@dataclass(frozen=True, slots=True)
class DrafterFigures:
    """What one drafter proposed, what stood, and the seconds it took."""

    name: str
    drafted: int
    accepted: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Live:
    """Figures as docs/reference/glossary.md defines them; None where nothing was measured yet."""

    model: ModelInfo
    """Whose figures they are."""
    tokens: int
    steps: int
    rate: float | None
    """Tokens per second over the whole reply."""
    plain_rate: float | None
    plain_source: str | None
    speedup: float | None
    drafted: int
    accepted: int
    acceptance: float | None
    tokens_per_step: float | None
    accepted_by_position: tuple[float, ...]
    drafted_at_position: tuple[int, ...]
    accepted_lengths: tuple[int, ...]
    shape: str
    """Of the last step's draft."""
    steps_by_shape: Mapping[Shape, int]
    by_drafter: tuple[DrafterFigures, ...]
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    ttft_seconds: float | None
    prompt_tokens: int
    cached_prompt_tokens: int
    context_used: int
    context_size: int
    wall: float | None
    times_wall: float | None
    bandwidth: float | None
    bandwidth_source: str | None
    target_bytes: int
    drafter_bytes: int
    kv_bytes: int
    state: State
    reason: str
    choice: str
    """What the last step drafted, and why."""
    drafters: tuple[str, ...]
    lossy: str = ""
    """The lossy rule that it owes tokens to, in words."""


def live(session: Session, reply: Reply) -> Live:
    """The figures as they stand; call it on the thread that runs the session."""
    statistics = reply.statistics
    found = performance(session, reply)
    drafting = session.drafting
    return Live(
        model=session.model.info,
        tokens=statistics.completion_tokens,
        steps=statistics.steps,
        rate=statistics.decode_tokens_per_second,
        plain_rate=found["plain_tokens_per_second"],
        plain_source=found["plain_source"],
        speedup=found["speedup"],
        drafted=statistics.drafted,
        accepted=statistics.accepted,
        acceptance=statistics.acceptance,
        tokens_per_step=statistics.tokens_per_step,
        accepted_by_position=tuple(statistics.accepted_by_position),
        drafted_at_position=tuple(statistics.drafted_at_position),
        accepted_lengths=tuple(statistics.accepted_lengths),
        shape=_shape(statistics.last_step),
        steps_by_shape=dict(statistics.steps_by_shape),
        by_drafter=tuple(
            DrafterFigures(name, one.drafted, one.accepted, one.draft_seconds)
            for name, one in statistics.by_drafter.items()
        ),
        draft_seconds=statistics.draft_seconds,
        verify_seconds=statistics.verify_seconds,
        other_seconds=statistics.overhead_seconds or 0.0,
        ttft_seconds=statistics.ttft_seconds,
        prompt_tokens=statistics.prompt_tokens,
        cached_prompt_tokens=statistics.cached_prompt_tokens,
        context_used=session.context.length,
        context_size=session.context.n_ctx,
        wall=found["wall_tokens_per_second"],
        times_wall=found["times_wall"],
        bandwidth=found["bandwidth_bytes_per_second"],
        bandwidth_source=found["bandwidth_source"],
        target_bytes=found["memory"]["target_bytes"],
        drafter_bytes=found["memory"]["drafter_bytes"],
        kv_bytes=found["memory"]["kv_bytes"],
        state=drafting.state,
        reason=drafting.reason,
        choice=str(drafting.controller.choice) if drafting.controller else "",
        drafters=tuple(drafting.names),
        lossy=reply.lossy.words if reply.lossy else "",
    )


def _shape(step: Step | None) -> str:
    if step is None:
        return ""
    return "plain" if step.passed == 1 else in_words(step.shape, step.drafted, step.width)
