"""Calibration: what it measures, how long it takes, and what it leaves behind."""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from backends.base import Context, Logits, PassStoppedError
from backends.base.model import reads_of_one_token
from decoding.estimation.calibration import (
    MOST_TOKENS,
    calibrate,
    calibrate_held,
    combined,
    ends_early,
)
from decoding.estimation.cost import WIDTHS, CostModel, Measured
from tests.fixtures.simulator import H100, STREAMED, Curve, Recorded

TEXT = [1, 2, 3, 4, 5, 0] * 22


class Slow:
    """A context whose passes take the time a curve says, on a clock of its own."""

    def __init__(self, inner, plain: float, curve: Curve | float) -> None:
        """curve: cost of a pass in plain steps, or of each further token."""
        self._inner = inner
        self._plain = plain
        if isinstance(curve, int | float):
            curve = [0.0, *(1.0 + curve * n for n in range(64))]
        self._curve = curve
        self.now = 0.0
        self.passes: list[Sequence[int]] = []

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def clock(self) -> float:
        return self.now

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        assert n_logits == len(tokens), "every row is asked for, as in verification"
        self.now += self._plain * self._curve[len(tokens)]
        self.passes.append(tokens)
        return self._inner.forward(tokens, n_logits)


def measured(context: Slow, expert_share: float = 0.0) -> Measured:
    return calibrate(cast("Context", context), TEXT, context.clock, expert_share)


@pytest.mark.parametrize(
    ("plain", "most_seconds"), [(0.001, 1.5), (0.010, 1.5), (0.030, 5.0), (0.200, 5.0)]
)
@pytest.mark.parametrize("slope", [0.01, 0.4])
def test_it_finds_the_curve_in_time(
    table: Callable, fake_context: Callable, plain: float, most_seconds: float, slope: float
) -> None:
    context = Slow(fake_context(table(0), n_ctx=64, n_chunk=16), plain, slope)
    found = measured(context)
    assert context.now <= most_seconds
    assert context.length == 0
    assert {1, 2, 4} <= set(found.seconds)
    for n, seconds in found.seconds.items():
        assert seconds == pytest.approx(plain * (1 + slope * (n - 1)))
    assert found.switching == pytest.approx(0.0)


def test_a_fast_model_gets_more_points_than_a_slow_one(
    table: Callable, fake_context: Callable
) -> None:
    def points(plain: float) -> int:
        context = Slow(fake_context(table(0), n_ctx=64, n_chunk=16), plain, 0.4)
        return len(measured(context).seconds)

    assert points(0.005) > points(0.2) > points(2.0)


@pytest.mark.parametrize(
    ("slope", "points", "most_plain_passes"),
    [
        (1.0, {1, 2}, 4),
        (0.6, {1, 2}, 4),
        (0.3, {1, 2, 4}, 6),
        (0.1, {1, 2, 16}, 6),
        (0.02, {1, 2, 63}, 6),
        (0.0, {1, 2, 63}, 5),
    ],
)
def test_a_model_of_seconds_a_token_is_timed_once_on_what_may_pay(
    table: Callable, fake_context: Callable, slope: float, points: set[int], most_plain_passes: int
) -> None:
    context = Slow(fake_context(table(0), n_ctx=128, n_chunk=64), 4.0, slope)
    found = measured(context)
    assert set(found.seconds) == points
    assert context.now <= most_plain_passes * 4.0
    assert context.length == 0


@pytest.mark.parametrize("name", STREAMED)
def test_a_streamed_model_is_timed_on_long_passes_in_the_time_of_a_few_plain_steps(
    table: Callable, fake_context: Callable, name: str
) -> None:
    """Between the points the curve is near enough that it leads to the same drafts."""
    plain, curve = STREAMED[name]
    context = Slow(fake_context(table(0), n_ctx=128, n_chunk=64), plain, curve)
    found = measured(context)
    assert {1, 2, 63} <= set(found.seconds)
    assert context.now <= 9 * plain
    assert not ends_early(found.seconds, cast("Context", context))
    costs = CostModel(found)
    for n in range(1, 64):
        assert costs.relative(n) == pytest.approx(curve[n], rel=0.12)


def experts_read(experts: int, used: int, steadiness: float = 0.0) -> Curve:
    """Cost of passes that read experts only, whose tokens in part choose those of the first."""
    curve = [reads_of_one_token(used / experts, n) for n in range(65)]
    return [0.0, *(1.0 + (1.0 - steadiness) * (cost - 1.0) for cost in curve[1:])]


@pytest.mark.parametrize(
    ("experts", "used", "steadiness", "lengths"),
    [
        (8, 2, 0.0, {1, 2, 63}),
        (32, 4, 0.0, {1, 2, 63}),
        (64, 6, 0.0, {1, 2}),
        (128, 8, 0.0, {1, 2}),
        (128, 8, 0.6, {1, 2, 63}),
    ],
)
def test_a_streamed_mixture_of_experts_is_timed_where_its_experts_are_few(
    table: Callable,
    fake_context: Callable,
    experts: int,
    used: int,
    steadiness: float,
    lengths: set[int],
) -> None:
    """Between a short and a long pass, cost goes by the experts that are read."""
    curve = experts_read(experts, used, steadiness)
    context = Slow(fake_context(table(0), n_ctx=128, n_chunk=64), 0.7, curve)
    found = measured(context, used / experts)
    assert set(found.seconds) == lengths
    assert not ends_early(found.seconds, cast("Context", context), used / experts)
    costs = CostModel(found)
    for n in range(1, costs.largest + 1):
        assert costs.relative(n) == pytest.approx(curve[n])


def test_every_pass_goes_on_in_the_text(table: Callable, fake_context: Callable) -> None:
    context = Slow(fake_context(table(0), n_ctx=128, n_chunk=64), 0.7, experts_read(8, 2))
    measured(context, 0.25)
    assert [token for one in context.passes for token in one] == TEXT[: 1 + 1 + 2 + 63]


def test_a_slow_model_whose_kernels_work_in_groups_is_timed_on_a_whole_one(
    table: Callable, fake_context: Callable
) -> None:
    grouped = [0.0, 1.0, 1.9, 2.5, 2.3, *(3.0 + 0.4 * n for n in range(60))]
    inner = fake_context(table(0), n_ctx=128, n_chunk=64)
    assert 4 in measured(Slow(inner, 0.7, grouped)).seconds
    assert 4 not in measured(Slow(inner, 7.0, grouped)).seconds


def test_the_limits_of_a_context_hold(table: Callable, fake_context: Callable) -> None:
    context = Slow(fake_context(table(0), n_ctx=8, n_chunk=4), 0.01, 0.4)
    found = measured(context)
    assert max(found.seconds) == 4
    assert max(context.forwards) <= 4


@pytest.mark.parametrize(
    ("slope", "longest"), [(0.005, 63), (0.05, 63), (0.09, 32), (0.13, 32), (0.14, 16), (0.4, 16)]
)
@pytest.mark.parametrize(("plain", "most_seconds"), [(0.002, 1.5), (0.010, 1.5), (0.050, 7.0)])
def test_where_the_longest_pass_takes_little_it_goes_on(
    table: Callable,
    fake_context: Callable,
    slope: float,
    longest: int,
    plain: float,
    most_seconds: float,
) -> None:
    """A pass over 16 tokens takes 3 plain steps at a slope of 0.133, one over 32 at 0.065."""
    context = Slow(fake_context(table(0), n_ctx=128, n_chunk=64), plain, slope)
    found = measured(context)
    assert max(found.seconds) == longest
    assert CostModel(found).largest == longest
    assert not ends_early(found.seconds, cast("Context", context))
    assert found.seconds[longest] == pytest.approx(plain * (1 + slope * (longest - 1)))
    assert context.now <= most_seconds


def test_a_flat_curve_of_before_ends_early_where_the_context_takes_more(
    table: Callable, fake_context: Callable
) -> None:
    flat, steep = {1: 0.01, 16: 0.012}, {1: 0.01, 16: 0.057}

    def early(seconds: dict[int, float], n_chunk: int) -> bool:
        return ends_early(seconds, fake_context(table(0), n_ctx=128, n_chunk=n_chunk))

    assert early(flat, 64)
    assert not early(flat, 31)
    assert not early(steep, 64)
    assert early({1: 4.0, 4: 4.1}, 64), "an earlier version timed slow models on no longer ones"
    assert not early({1: 4.0, 4: 4.1}, 4)
    assert not early({1: 4.0, 2: 7.0}, 64)


@pytest.mark.parametrize("passes", [1, 3, 20])
def test_no_pass_begins_once_it_is_unwanted(
    table: Callable, fake_context: Callable, passes: int
) -> None:
    context = Slow(fake_context(table(0), n_ctx=64, n_chunk=16), 0.01, 0.4)
    with pytest.raises(PassStoppedError):
        calibrate(
            cast("Context", context),
            TEXT,
            context.clock,
            is_wanted=lambda: len(context.passes) < passes,
        )
    assert len(context.passes) == passes


class Attending(Slow):
    """Passes also take time by tokens held: of one token 0.1 plain steps for 10, of more double."""

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        held = self.length - 1  # the one of a context for measuring takes nothing
        self.now += self._plain * 0.01 * held * min(len(tokens), 2)
        return super().forward(tokens, n_logits)


@pytest.mark.parametrize("bounded", [None, 16])
@pytest.mark.parametrize("stopped_after", [None, 0, 7])
def test_what_is_held_is_measured_beside_an_empty_context_and_stays(
    table: Callable, fake_context: Callable, bounded: int | None, stopped_after: int | None
) -> None:
    def opened() -> Attending:
        return Attending(fake_context(table(0), n_ctx=128, n_chunk=16, depth=bounded), 0.01, 0.4)

    deep, empty = opened(), opened()
    empty.clock = deep.clock = lambda: deep.now + empty.now  # pyright: ignore
    text = [1, 2, 3, 4, 5] * 8 + [1]
    for start in range(0, 41, 8):
        deep.forward(text[start : start + 8], len(text[start : start + 8]))
    asked = iter(range(1 << 20))
    known = Measured({n: 0.01 * (1 + 0.4 * (n - 1)) for n in (1, 2, 4, 16)})

    def found() -> Mapping[int, float] | None:
        return calibrate_held(
            cast("Context", deep),
            cast("Context", empty),
            known,
            TEXT,
            deep.clock,
            lambda: next(asked) != stopped_after,
        )

    if stopped_after is None:
        assert found() == pytest.approx({1: 0.4, 2: 0.8, 4: 0.8, 16: 0.8})
    else:
        with pytest.raises(PassStoppedError):
            found()
    assert deep.tokens == text


def test_timings_after_many_tokens_that_disagree_tell_nothing(
    table: Callable, fake_context: Callable
) -> None:
    class Disturbed(Attending):
        def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
            self.now += 0.001 * len(self.passes)
            return super().forward(tokens, n_logits)

    deep = Disturbed(fake_context(table(0), n_ctx=64), 0.01, 0.4)
    deep.forward([1, 2], 2)
    empty = cast("Context", fake_context(table(0), n_ctx=64))
    known = Measured({1: 0.01, 4: 0.02})
    assert calibrate_held(cast("Context", deep), empty, known, TEXT, deep.clock) is None


class Replaying(Slow):
    """A GPU: the first two passes of a width take longer, and the very first ones load kernels."""

    def __init__(self, inner: Any, plain: float, curve: Curve, change: float, first: float) -> None:
        """change: what the two passes take beyond steady ones, in plain steps; first: its share."""
        super().__init__(inner, plain, curve)
        self._change = change
        self._first = first
        self._widths = [0, 0]
        self._loaded = set[int]()

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        width = len(tokens)
        if self._widths != [width, width]:
            share = self._first if self._widths[1] != width else 1.0 - self._first
            self.now += self._plain * self._change * share
        self.now += 0.0 if width in self._loaded else 2.0 * self._plain
        self._loaded.add(width)
        self._widths = [self._widths[1], width]
        return super().forward(tokens, n_logits)


@pytest.mark.parametrize("body", H100.values(), ids=H100)
@pytest.mark.parametrize("first", [0.5, 1.0])
def test_a_gpu_that_replays_passes_is_measured_in_runs(
    table: Callable, fake_context: Callable, body: Recorded, first: float
) -> None:
    """A plain step is a steady one; in turns with others it would seem to take up to twice that.

    Where a recording of each width is kept, the first pass of a run takes longer alone.
    """
    change = body.changes[1]
    context = Replaying(
        fake_context(table(0), n_ctx=200, n_chunk=64), body.plain, body.passes, change, first
    )
    found = calibrate(cast("Context", context), TEXT, context.clock, on_gpu=True)
    widths = [width for width in WIDTHS if width <= MOST_TOKENS]
    assert found.seconds == pytest.approx({n: body.plain * body.passes[n] for n in widths})
    assert found.changes == pytest.approx(dict.fromkeys(widths, body.plain * change))
    in_turns = calibrate(cast("Context", context), TEXT, context.clock).seconds[1]
    if first < 1.0:
        assert in_turns > 1.1 * found.seconds[1]


def test_a_gpu_that_replays_nothing_is_measured_as_ever(
    table: Callable, fake_context: Callable
) -> None:
    """A few plain steps tell."""
    contexts = [Slow(fake_context(table(0), n_ctx=64, n_chunk=16), 0.005, 0.1) for _ in range(2)]
    found = [
        calibrate(cast("Context", context), TEXT, context.clock, on_gpu=on_gpu)
        for context, on_gpu in zip(contexts, (False, True), strict=True)
    ]
    assert not found[1].changes
    assert found[1].seconds == pytest.approx(found[0].seconds)
    assert len(contexts[1].passes) <= len(contexts[0].passes) + 10


SHORT_TEXT = [1, 2, 3, 4, 5, 0] * 8
GROUPED = {1: 1.0, 2: 1.9, 3: 2.5, 4: 2.3, 5: 3.2, 8: 4.0, 9: 4.6, 16: 5.7}
"""Plain steps that a pass takes on a processor whose kernels take four tokens at once."""

SEEDS = range(60)
NEAR = 0.15


class Busy:
    """A context whose passes take the time of a curve, and more while other programs run."""

    def __init__(
        self, inner: Any, plain: float, curve: Mapping[int, float], noise: "Noise"
    ) -> None:
        self._inner, self._plain, self._curve, self._noise = inner, plain, curve, noise

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def clock(self) -> float:
        return self._noise.now

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        self._noise.work(self._plain * self._curve[len(tokens)])
        return self._inner.forward(tokens, n_logits)


class Noise:
    """A clock on a quiet machine: passes differ by some 2 %."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0

    def work(self, seconds: float) -> None:
        self.now += seconds * (1.0 + abs(self.chance.gauss(0.0, 0.02)))


class Spikes(Noise):
    """A third of the passes are interrupted, each for itself."""

    def work(self, seconds: float) -> None:
        if self.chance.random() < 0.35:
            seconds *= 1.0 + self.chance.expovariate(1.25)
        super().work(seconds)


class Crowd(Noise):
    """Four passes in five are interrupted, each for itself."""

    def work(self, seconds: float) -> None:
        if self.chance.random() < 0.8:
            seconds *= 1.0 + self.chance.expovariate(1.25)
        super().work(seconds)


class Phases(Noise):
    """Another program runs half of the time, about half a second on end."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._slowdown, self._until = 1.0, 0.0

    def work(self, seconds: float) -> None:
        seconds *= 1.0 + abs(self.chance.gauss(0.0, 0.02))
        while seconds > 1e-9:
            if self._until <= self.now:
                quiet = self._slowdown > 1.0 or (self.now == 0.0 and self.chance.random() < 0.5)
                self._slowdown = 1.0 if quiet else self.chance.uniform(1.3, 2.5)
                self._until = self.now + self.chance.expovariate(2.0)
            spent = min(seconds * self._slowdown, self._until - self.now)
            self.now += spent
            seconds -= spent / self._slowdown


def by_medians(context: Context, clock: Callable[[], float]) -> Measured:
    """A wrong variant: medians of three rounds, kept whatever they are."""
    found: dict[int, list[float]] = {}
    for _ in range(3):
        for n in (1, 2, 1, 3, 1, 4, 1, 5, 1, 8, 1, 9, 1, 16):
            context.truncate(0)
            started = clock()
            context.forward(SHORT_TEXT[:n], n)
            found.setdefault(n, []).append(clock() - started)
    return Measured({n: statistics.median(times) for n, times in found.items()})


def is_right(seconds: Mapping[int, float], curve: Mapping[int, float]) -> bool:
    """Whether every point is near what it costs in plain steps."""
    found = {n: value / seconds[1] / curve[n] for n, value in seconds.items()}
    return all(abs(ratio - 1.0) < NEAR for ratio in found.values())


@pytest.fixture
def busy(table: Callable, fake_context: Callable) -> Callable[..., Busy]:
    def make(noise: Noise, plain: float, curve: Mapping[int, float] = GROUPED) -> Busy:
        return Busy(fake_context(table(0), n_ctx=64, n_chunk=16), plain, curve, noise)

    return make


def calibrated(context: Busy) -> Measured:
    return calibrate(cast("Context", context), SHORT_TEXT, context.clock)


@pytest.mark.parametrize(("noise", "plain"), [(Spikes, 0.005), (Phases, 0.014)])
def test_what_is_sure_on_a_busy_machine_is_right(
    busy: Callable[..., Busy], noise: type[Noise], plain: float
) -> None:
    found = [calibrated(busy(noise(seed), plain)) for seed in SEEDS]
    kept = [one for one in found if one.is_steady]
    right = sum(is_right(one.seconds, GROUPED) for one in kept)
    assert len(kept) >= 0.8 * len(found)
    assert right >= 0.9 * len(kept)
    contexts = [busy(noise(seed), plain) for seed in SEEDS]
    medians = [by_medians(cast("Context", one), one.clock) for one in contexts]
    assert sum(is_right(one.seconds, GROUPED) for one in medians) <= 0.5 * len(medians)


@pytest.mark.parametrize("plain", [0.005, 0.014])
def test_measurements_that_are_unsure_are_right_together(
    busy: Callable[..., Busy], plain: float
) -> None:
    """Each is told as unsure; the more there are, the nearer they come, and the surer they are."""
    right, sure = [0, 0, 0], [0, 0, 0]
    for seed in SEEDS:
        found: Measured | None = None
        for time in range(3):
            one = calibrated(busy(Crowd(1000 * seed + time), plain))
            found = one if found is None else combined(found, one)
            right[time] += is_right(found.seconds, GROUPED)
            sure[time] += found.is_steady
    assert right[0] <= 0.5 * len(SEEDS)
    assert sure[0] <= 0.1 * len(SEEDS)
    assert right[2] >= 0.9 * len(SEEDS)
    assert sure[2] >= 0.5 * len(SEEDS)


def test_the_fastest_passes_count_and_what_agrees_is_sure() -> None:
    first = Measured({1: 1.0, 2: 2.0, 4: 3.0, 16: 9.0}, 0.1, {2: 0.5, 4: 0.3, 16: 0.2})
    second = Measured({1: 1.1, 2: 1.95, 4: 2.4, 8: 4.0, 16: 9.5}, 0.0, {4: 0.4})
    both = combined(first, second)
    assert both.seconds == {1: 1.0, 2: 1.95, 4: 2.4, 8: 4.0, 16: 9.0}
    assert both.unsure == {4: pytest.approx(0.25)}
    assert both.spread == pytest.approx(0.25)
    assert combined(second, first) == both


def test_four_tokens_may_cost_less_than_three_or_two(busy: Callable[..., Busy]) -> None:
    curves = (GROUPED, GROUPED | {2: 1.9, 3: 2.8, 4: 1.4, 5: 2.3})
    for curve in curves:
        for seed in SEEDS:
            found = calibrated(busy(Noise(seed), 0.005, curve))
            assert found.is_steady
            assert is_right(found.seconds, curve)


@pytest.mark.parametrize(("plain", "most_seconds"), [(0.005, 2.5), (0.014, 6.0), (0.1, 9.0)])
def test_repeating_has_an_end(busy: Callable[..., Busy], plain: float, most_seconds: float) -> None:
    for seed in SEEDS:
        context = busy(Phases(seed), plain)
        calibrated(context)
        assert context.clock() < most_seconds


def test_a_quiet_machine_waits_no_longer(busy: Callable[..., Busy]) -> None:
    """Nothing is repeated there, of a slow model not even once."""
    for plain, most_seconds in ((0.001, 1.0), (0.005, 1.0), (0.1, 4.5)):
        context = busy(Noise(1), plain)
        assert calibrated(context).is_steady
        assert context.clock() < most_seconds
