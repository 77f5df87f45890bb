"""Figures of a reply, and how its speed compares with plain decoding."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self, cast

from app.engine.reply import Reply
from app.loading.pass_time import ReadRates
from backends.base import ModelInfo
from decoding.estimation.cost import CostModel
from decoding.events import Shape, Shortfall, State, Step, in_words
from decoding.telemetry import DrafterStatistics, Statistics

if TYPE_CHECKING:
    from app.engine.session import Session

ENOUGH_TOKENS = 64
"""Shortest reply whose speed is worth comparing; shorter ones are too noisy."""

_LARGEST_ERROR = 0.25
"""With a larger error, "even" would promise more than was measured."""

_LEAST_ERROR = 0.01
"""A smaller difference is called even however sure it is."""


class Standing(StrEnum):
    PLAIN = "plain"
    """Nothing was drafted."""
    SHARED = "shared"
    """Others were written in the same passes: the rate is no speed of this machine."""
    SHORT = "short"
    """Too few tokens, or no plain rate yet."""
    NOISY = "noisy"
    """The error is so large that neither a gain nor its absence is shown."""
    EVEN = "even"
    """The error includes no difference."""
    FASTER = "faster"
    SLOWER = "slower"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A speedup and its error, twice the standard error; both None where nothing is compared.

    is_paused: whether drafting is paused, which the words for a slower speed add.
    """

    standing: Standing
    speedup: float | None = None
    error: float | None = None
    is_paused: bool = False

    @property
    def words(self) -> str:
        """The comparison for the screen, or what a rate is; empty where nothing is compared."""
        if self.standing is Standing.SHARED:
            return "beside others"
        if self.speedup is None or self.error is None or self.standing is Standing.NOISY:
            return ""
        if self.standing is Standing.EVEN:
            return f"even with plain ± {_percent(self.error)} %"
        if self.standing is Standing.SLOWER:
            slower = (
                f"▲ {_percent(1 - self.speedup)} % slower than plain ± {_percent(self.error)} %"
            )
            return f"{slower} · drafting paused" if self.is_paused else slower
        digits = 1 if self.error >= 0.05 else 2
        return f"{self.speedup:.{digits}f}× plain ± {max(self.error, 10**-digits):.{digits}f}"

    @property
    def panel_words(self) -> str:
        """The words, and why there are none for a short reply or on a busy machine."""
        why = {Standing.SHORT: "too short to compare", Standing.NOISY: "too noisy to compare"}
        return why.get(self.standing) or self.words


PLAIN = Comparison(Standing.PLAIN)


def compare(
    speedup: float | None,
    error: float | None,
    tokens: int,
    *,
    is_drafted: bool,
    is_paused: bool = False,
) -> Comparison:
    """Compare a reply with plain decoding.

    speedup: its rate over the plain rate; error: twice the standard error of that ratio.
    """
    if not is_drafted:
        return PLAIN
    if speedup is None or error is None or tokens < ENOUGH_TOKENS:
        return Comparison(Standing.SHORT)
    if abs(speedup - 1.0) <= max(error, _LEAST_ERROR):
        standing = Standing.NOISY if error > _LARGEST_ERROR else Standing.EVEN
        return Comparison(standing, speedup, error)
    standing = Standing.FASTER if speedup > 1.0 else Standing.SLOWER
    return Comparison(standing, speedup, error, is_paused)


def compare_replies(drafted: float, plain: float, tokens: int, spread: float) -> Comparison:
    """Compare the rates of two replies that were generated one after the other.

    tokens: of the shorter one. spread: relative standard deviation between such replies.
    """
    speedup = drafted / plain
    return compare(speedup, 2.0 * math.sqrt(2.0) * speedup * spread, tokens, is_drafted=True)


def _percent(share: float) -> int:
    return max(1, round(100 * share))


_ENOUGH_PLAIN_STEPS = 3
"""Plain steps of a reply whose mean is taken as the plain rate."""

_ENOUGH_STEPS = 12
"""Steps of any kind after which the corrected costs are taken as those of the present load."""

_COST_ERROR = 0.12
"""Relative standard error of the corrected cost of a plain step.

Robust standard deviation of its ratio to the mean of a reply's own plain steps, in 102 replies of
the bundled model on two processors that other programs used too.
"""


@dataclass(frozen=True, slots=True)
class PlainRate:
    """Plain decoding during a reply: tokens per second, and where the figure comes from.

    error: relative standard error of the reply's rate over this one; None if nothing was drafted.
    """

    tokens_per_second: float
    source: str
    error: float | None = None


def plain_rate(costs: CostModel | None, statistics: Statistics, noise: float) -> PlainRate | None:
    """The plain rate at the load during a reply; None until it can be told.

    costs: of the target's passes, None where nothing drafts. noise: relative standard error of the
    speed over one second of plain decoding here.
    """
    seconds = statistics.decode_seconds
    if not seconds:
        return None
    if costs is None or statistics.drafted == 0:
        return PlainRate((statistics.completion_tokens - 1) / seconds, "this plain answer")
    plain = statistics.plain_steps
    noise = max(noise, plain.noise or 0.0)
    # Where changes of width cost time, the plain steps between others are not those of plain
    # decoding.
    if not costs.changes and plain.count >= _ENOUGH_PLAIN_STEPS and plain.total > 0.0:
        source = f"{plain.count} plain steps of this answer"
        return PlainRate(plain.count / plain.total, source, _error(plain.total, seconds, noise))
    if statistics.steps < _ENOUGH_STEPS:
        return None
    source = "measured when the model was loaded, corrected by the steps of this answer"
    error = math.hypot(_COST_ERROR, noise / math.sqrt(seconds))
    return PlainRate(1.0 / costs.seconds(1), source, error)


def _error(plain: float, seconds: float, noise: float) -> float:
    """Relative standard error of a speedup over the plain steps of the same reply.

    plain: seconds in plain steps, which are part of all seconds and so contribute nothing. The
    others and the plain ones vary independently, each with the root of its time.
    """
    drafted = max(seconds - plain, 0.0)
    return noise * math.sqrt(drafted**2 / plain + drafted) / seconds


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of the target's weights, the drafters' weights, and all key-value caches."""

    target_bytes: int
    drafter_bytes: int
    kv_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyMetrics:
    """Figures of a reply at one moment; None if not measured (docs/reference/glossary.md)."""

    model: ModelInfo
    context_used: int
    context_size: int
    state: State
    """Whether drafting is on, paused or off."""
    reason: str = ""
    """Why drafting, or a drafter, is not on."""
    shortfall: Shortfall | None = None
    """Of the paused drafter that is closest to paying, None if none was measured."""
    drafters: tuple[str, ...] = ()
    decision: str = ""
    """What the controller decided for the last step, and why."""
    shape: str = ""
    """Shape of the last step's draft, in words."""
    last_draft: str = ""
    """What became of the last step's draft: "lookup: 4 of 6 accepted"; empty without a draft."""
    lossy: str = ""
    """The lossy rule that tokens may depend on, in words; empty for a lossless reply."""
    thinking_ended_at: int = 0
    """As of a Reply."""
    prompt_tokens: int
    cached_prompt_tokens: int
    ahead_tokens: int = 0
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
    by_drafter: Mapping[str, DrafterStatistics]
    load_seconds: float = 0.0
    prefill_seconds: float | None
    ttft_seconds: float | None
    decode_seconds: float | None
    decode_tokens_per_second: float | None
    draft_seconds: float
    verify_seconds: float
    overhead_seconds: float | None
    plain_tokens_per_second: float | None = None
    plain_source: str | None = None
    speedup: float | None = None
    speedup_error: float | None = None
    """Twice the standard error of the speedup; None where nothing was drafted."""
    comparison: Comparison = PLAIN
    bytes_per_token: int = 0
    bandwidth_bytes_per_second: float | None = None
    bandwidth_source: str | None = None
    wall_tokens_per_second: float | None = None
    times_wall: float | None = None
    energy_joules_per_token: float | None = None
    energy_source: str | None = None
    peak_memory_bytes: int | None = None
    memory: MemoryUse = MemoryUse(0, 0, 0)
    told_by_server: Mapping[str, float] | None = None
    """What a server tells of its drafting, as it names it; None where the model is here."""
    server_ended: bool = True
    """Whether a server's answer came to its end, at which most tell of drafting."""


def reply_metrics(session: "Session", reply: Reply, *, is_final: bool = True) -> ReplyMetrics:
    """Take a snapshot, on the thread that runs the session.

    is_final: whether to ask the system for the peak memory too, which takes half of the time.
    """
    # Screens import this file for the names of figures, before anything runs.
    from app.engine.session import bytes_per_token
    from backends.hardware.host import peak_memory_bytes

    statistics = reply.statistics
    drafting, context, info = session.drafting, session.context.facts, session.model.info
    status = drafting.status_with(reply.own_statuses)
    reserve = drafting.reserve if reply.own_drafters else None
    controller, bandwidth = drafting.controller or reserve, session.bandwidth
    rate = statistics.decode_tokens_per_second
    costs = controller.costs if controller else None
    noise = session.plain_replies.noise
    plain = None if reply.is_shared else plain_rate(costs, statistics, noise)
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
        thinking_ended_at=reply.thinking_ended_at,
        ahead_tokens=reply.ahead_tokens,
        load_seconds=session.load_seconds,
        decode_tokens_per_second=rate,
        plain_tokens_per_second=plain.tokens_per_second if plain else None,
        plain_source=plain.source if plain else None,
        speedup=speedup,
        speedup_error=error,
        comparison=Comparison(Standing.SHARED)
        if reply.is_shared
        else compare(
            speedup,
            error,
            statistics.completion_tokens,
            is_drafted=statistics.drafted > 0,
            is_paused=status.state is State.PAUSED,
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
        **snapshot(statistics),
    )


_COUNTED = (
    "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "steps", "drafted", "accepted",
    "acceptance", "drafted_share", "tokens_per_step", "accepted_by_position", "drafted_at_position",
    "accepted_lengths", "steps_by_shape", "by_drafter", "prefill_seconds", "ttft_seconds",
    "decode_seconds", "draft_seconds",
    "verify_seconds", "overhead_seconds",
)  # fmt: skip
"""Figures that a reply's statistics have under the same name."""


def snapshot(statistics: Statistics) -> dict[str, Any]:
    """The figures of ReplyMetrics that a reply counts, which it no longer changes."""
    figures = {name: getattr(statistics, name) for name in _COUNTED}
    for name, value in figures.items():
        if isinstance(value, list):
            figures[name] = tuple(cast("list[Any]", value))
    by_drafter = {name: replace(one) for name, one in statistics.by_drafter.items()}
    return figures | {"steps_by_shape": dict(statistics.steps_by_shape), "by_drafter": by_drafter}


def _joules_per_token(reply: Reply) -> float | None:
    decoded = reply.statistics.completion_tokens - 1
    if reply.joules is None or reply.is_shared or decoded <= 0:
        return None
    return reply.joules / decoded


def _shape(step: Step | None) -> str:
    if step is None:
        return ""
    return "plain" if step.passed == 1 else in_words(step.shape, step.drafted, step.width)


def _last_draft(step: Step | None) -> str:
    if step is None or not step.drafted:
        return ""
    return f"{step.drafter}: {step.accepted} of {step.drafted} accepted"


def wall(
    bytes_per_token: int, memory: float | None, streamed: int = 0, disk: float | None = None
) -> float | None:
    """Tokens a second at most; None where memory, or a disk that is read, was not measured.

    bytes_per_token: read in all, streamed of them from disk. memory, disk: bytes a second.
    """
    if memory is None:
        return None
    if not streamed:
        return memory / bytes_per_token
    if disk is None:
        return None
    return 1.0 / ReadRates(disk, memory).seconds(streamed, bytes_per_token)


@dataclass(frozen=True, slots=True)
class SessionSpeedup:
    """Sums over answers; those whose plain speed is unknown are left out."""

    answers: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Decode time."""
    plain_seconds: float = 0.0
    """Decode time that plain decoding would have taken."""
    plain_variance: float = 0.0
    """Square of twice the standard error of that time."""
    is_drafted: bool = False
    """Whether any token was drafted."""

    def with_answer(self, metrics: ReplyMetrics) -> Self:
        seconds, speedup = metrics.decode_seconds, metrics.speedup
        if not seconds or speedup is None:
            return self
        error = (metrics.speedup_error or 0.0) * seconds
        return type(self)(
            self.answers + 1,
            self.tokens + metrics.completion_tokens,
            self.seconds + seconds,
            self.plain_seconds + speedup * seconds,
            self.plain_variance + error**2,
            self.is_drafted or metrics.drafted > 0,
        )

    @property
    def comparison(self) -> Comparison:
        """The plain time of all answers over the time they took."""
        speedup = error = None
        if self.seconds:
            speedup = self.plain_seconds / self.seconds
            error = math.sqrt(self.plain_variance) / self.seconds
        return compare(speedup, error, self.tokens, is_drafted=self.is_drafted)
