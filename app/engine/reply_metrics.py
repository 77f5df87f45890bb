"""Figures of one reply: a frozen snapshot that the screen, the JSON report and the bench read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.engine.reply import Reply
from app.engine.speed.comparison import Comparison, compare
from app.engine.speed.plain_rate import plain_rate
from backends.base import ModelInfo
from decoding.drafting_state import Shortfall, State
from decoding.events import Step
from decoding.shape import Shape, in_words

if TYPE_CHECKING:
    from app.engine.session import Session


@dataclass(frozen=True, slots=True)
class DrafterMetrics:
    """Tokens drafted and accepted, and the time it took, of one drafter."""

    steps: int
    drafted: int
    accepted: int
    draft_seconds: float


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of the target's weights, the drafters' weights, and all key-value caches."""

    target_bytes: int
    drafter_bytes: int
    kv_bytes: int


@dataclass(frozen=True, slots=True)
class ReplyMetrics:
    """Figures of a reply at one moment; None if not measured (docs/reference/glossary.md)."""

    model: ModelInfo
    context_used: int
    context_size: int
    state: State
    """Whether drafting is on, parked or off."""
    reason: str
    """Why drafting, or a drafter, is not on."""
    shortfall: Shortfall | None
    """Of the parked drafter that is closest to paying, None if none was measured."""
    drafters: tuple[str, ...]
    decision: str
    """What the controller decided for the last step, and why."""
    shape: str
    """Shape of the last step's draft, in words."""
    last_draft: str
    """What became of the last step's draft: "lookup: 4 of 6 accepted"; empty without a draft."""
    lossy: str
    """The lossy rule that tokens may depend on, in words; empty for a lossless reply."""
    prompt_tokens: int
    cached_prompt_tokens: int
    ahead_tokens: int
    """Cached prompt tokens that were read before the request came."""
    completion_tokens: int
    steps: int
    drafted: int
    accepted: int
    acceptance: float | None
    drafted_share: float | None
    tokens_per_step: float | None
    accepted_by_position: tuple[float, ...]
    drafted_at_position: tuple[int, ...]
    accepted_lengths: tuple[int, ...]
    steps_by_shape: Mapping[Shape, int]
    by_drafter: Mapping[str, DrafterMetrics]
    load_seconds: float
    prefill_seconds: float | None
    ttft_seconds: float | None
    decode_seconds: float | None
    decode_tokens_per_second: float | None
    draft_seconds: float
    predrafted_rounds: int
    predraft_hits: int
    hidden_draft_seconds: float
    verify_seconds: float
    overhead_seconds: float | None
    plain_tokens_per_second: float | None
    plain_source: str | None
    speedup: float | None
    speedup_error: float | None
    """Twice the standard error of the speedup; None where nothing was drafted."""
    comparison: Comparison
    bytes_per_token: int
    bandwidth_bytes_per_second: float | None
    bandwidth_source: str | None
    wall_tokens_per_second: float | None
    times_wall: float | None
    energy_joules_per_token: float | None
    energy_source: str | None
    peak_memory_bytes: int | None
    memory: MemoryUse


def reply_metrics(session: "Session", reply: Reply, *, is_final: bool = True) -> ReplyMetrics:
    """Take a snapshot, on the thread that runs the session.

    is_final: whether to ask the system for the peak memory too, which takes half of the time.
    """
    # Screens import this file for the names of figures, before anything runs.
    from app.engine.session import bytes_per_token
    from app.engine.speed.wall import wall
    from backends.hardware.host import peak_memory_bytes

    statistics = reply.statistics
    drafting, context, info = session.drafting, session.context, session.model.info
    status = drafting.status_with(reply.own_statuses)
    reserve = drafting.reserve if reply.own_drafters else None
    controller, bandwidth = drafting.controller or reserve, session.bandwidth
    rate = statistics.decode_tokens_per_second
    costs = controller.costs if controller else None
    plain = plain_rate(costs, statistics, session.plain_replies.noise)
    speedup = rate / plain.tokens_per_second if rate and plain else None
    error = 2.0 * speedup * plain.error if speedup and plain and plain.error is not None else None
    read = bytes_per_token(info, context)
    limit = wall(
        read,
        bandwidth.bytes_per_second if bandwidth else None,
        info.streamed_bytes_per_token,
        session.disk.bytes_per_second if session.disk else None,
    )
    joules = _joules_per_token(reply)
    return ReplyMetrics(
        model=info,
        context_used=context.length,
        context_size=context.n_ctx,
        state=status.state,
        reason=status.reason,
        shortfall=status.shortfall,
        drafters=(*drafting.names, *reply.own_drafters),
        decision=str(controller.decision) if controller else "",
        shape=_shape(statistics.last_step),
        last_draft=_last_draft(statistics.last_step),
        lossy=reply.lossy.words if reply.lossy else "",
        prompt_tokens=statistics.prompt_tokens,
        cached_prompt_tokens=statistics.cached_prompt_tokens,
        ahead_tokens=reply.ahead_tokens,
        completion_tokens=statistics.completion_tokens,
        steps=statistics.steps,
        drafted=statistics.drafted,
        accepted=statistics.accepted,
        acceptance=statistics.acceptance,
        drafted_share=statistics.drafted_share,
        tokens_per_step=statistics.tokens_per_step,
        accepted_by_position=tuple(statistics.accepted_by_position),
        drafted_at_position=tuple(statistics.drafted_at_position),
        accepted_lengths=tuple(statistics.accepted_lengths),
        steps_by_shape=dict(statistics.steps_by_shape),
        by_drafter={
            name: DrafterMetrics(
                drafter.steps, drafter.drafted, drafter.accepted, drafter.draft_seconds
            )
            for name, drafter in statistics.by_drafter.items()
        },
        load_seconds=session.load_seconds,
        prefill_seconds=statistics.prefill_seconds,
        ttft_seconds=statistics.ttft_seconds,
        decode_seconds=statistics.decode_seconds,
        decode_tokens_per_second=rate,
        draft_seconds=statistics.draft_seconds,
        predrafted_rounds=statistics.predrafted_rounds,
        predraft_hits=statistics.predraft_hits,
        hidden_draft_seconds=statistics.hidden_draft_seconds,
        verify_seconds=statistics.verify_seconds,
        overhead_seconds=statistics.overhead_seconds,
        plain_tokens_per_second=plain.tokens_per_second if plain else None,
        plain_source=plain.source if plain else None,
        speedup=speedup,
        speedup_error=error,
        comparison=compare(
            speedup,
            error,
            statistics.completion_tokens,
            is_drafted=statistics.drafted > 0,
            is_paused=status.state is State.PARKED,
        ),
        bytes_per_token=read,
        bandwidth_bytes_per_second=bandwidth.bytes_per_second if bandwidth else None,
        bandwidth_source=bandwidth.source if bandwidth else None,
        wall_tokens_per_second=limit,
        times_wall=rate / limit if rate and limit else None,
        energy_joules_per_token=joules,
        energy_source=session.meter.source if session.meter and joules is not None else None,
        peak_memory_bytes=peak_memory_bytes() if is_final else None,
        memory=MemoryUse(
            info.weight_bytes,
            drafting.drafter_bytes,
            context.n_ctx * context.kv_bytes_per_token + context.state_bytes + drafting.kv_bytes,
        ),
    )


def _joules_per_token(reply: Reply) -> float | None:
    decoded = reply.statistics.completion_tokens - 1
    return None if reply.joules is None or decoded <= 0 else reply.joules / decoded


def _shape(step: Step | None) -> str:
    if step is None:
        return ""
    return "plain" if step.passed == 1 else in_words(step.shape, step.drafted, step.width)


def _last_draft(step: Step | None) -> str:
    if step is None or not step.drafted:
        return ""
    return f"{step.drafter}: {step.accepted} of {step.drafted} accepted"
