"""Calibration on a busy machine, simulated: what is said to be sure is right."""

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import pytest

from backends.base import Context, Logits
from decoding.estimation.calibration import calibrate, combined
from decoding.estimation.cost import Measured

TEXT = [1, 2, 3, 4, 5, 0] * 8
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
            context.forward(TEXT[:n], n)
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
    return calibrate(cast("Context", context), TEXT, context.clock)


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


@pytest.mark.parametrize("noise", [Noise, Spikes, Phases])
@pytest.mark.parametrize("plain", [0.005, 0.1])
def test_nothing_impossible_is_sure(
    busy: Callable[..., Busy], noise: type[Noise], plain: float
) -> None:
    for seed in SEEDS:
        found = calibrated(busy(noise(seed), plain))
        seconds = {1: found.seconds[1], **found.seconds}
        fours = [seconds[n] for n in (4, 8, 16) if n in seconds]
        if found.is_steady:
            assert all(value >= 0.97 * seconds[1] for value in seconds.values())
            assert all(a <= b / 0.97 for a, b in pairwise(fours))


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


def test_passes_that_contradict_each_other_are_unsure() -> None:
    both = combined(Measured({1: 1.0, 8: 3.0}), Measured({1: 1.0, 16: 2.0}))
    assert both.unsure == {8: pytest.approx(0.5), 16: pytest.approx(0.5)}


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
