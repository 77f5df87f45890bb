"""Calibration: what it measures, how long it takes, and what it leaves behind."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from backends.base import Context, Logits, PassStoppedError
from backends.base.model import reads_of_one_token
from decoding.estimation.calibration import MOST_TOKENS, calibrate, ends_early
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
    costs = CostModel.of(found)
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
    costs = CostModel.of(found)
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
    ("slope", "longest"),
    [(0.005, 63), (0.05, 63), (0.09, 32), (0.13, 32), (0.14, 16), (0.4, 16)],
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
    assert CostModel(found.seconds).largest == longest
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


class Replaying(Slow):
    """A GPU: the first two passes of a width take longer, and the very first ones load kernels."""

    def __init__(self, inner: Any, plain: float, curve: Curve, change: float) -> None:
        """change: what the first two passes take beyond steady ones, in plain steps."""
        super().__init__(inner, plain, curve)
        self._change = change
        self._widths = [0, 0]
        self._loaded = set[int]()

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        width = len(tokens)
        if self._widths != [width, width]:
            self.now += self._plain * self._change / 2.0
        self.now += 0.0 if width in self._loaded else 2.0 * self._plain
        self._loaded.add(width)
        self._widths = [self._widths[1], width]
        return super().forward(tokens, n_logits)


@pytest.mark.parametrize("body", H100.values(), ids=H100)
def test_a_gpu_that_replays_passes_is_measured_in_runs(
    table: Callable, fake_context: Callable, body: Recorded
) -> None:
    """A plain step is a steady one; in turns with others it would seem to take up to twice that."""
    change = body.changes[1]
    context = Replaying(
        fake_context(table(0), n_ctx=200, n_chunk=64), body.plain, body.passes, change
    )
    found = calibrate(cast("Context", context), TEXT, context.clock, on_gpu=True)
    widths = [width for width in WIDTHS if width <= MOST_TOKENS]
    assert found.seconds == pytest.approx({n: body.plain * body.passes[n] for n in widths})
    assert found.changes == pytest.approx(dict.fromkeys(widths, body.plain * change))
    in_turns = calibrate(cast("Context", context), TEXT, context.clock).seconds[1]
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
