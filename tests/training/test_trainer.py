"""Training: it learns, goes on to the same bits after being killed, and stops at no numbers."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.base import UsageError
from tests.fixtures.taught import cache_of, net_of, source
from training import trainer
from training.arrays import Arrays
from training.samples import SampleCache
from training.settings import TrainSettings
from training.trainer import DivergedError, rate_at, train, weights_of

SETTINGS = TrainSettings(method="eagle3", steps=24, batch_tokens=64, vocabulary=80, rate=1e-2)
MOMENTS = 20


@pytest.fixture
def cache(tmp_path: Path) -> SampleCache:
    return cache_of(tmp_path / "samples")


class Killed(BaseException):
    """The process ends, at any place that a net or the disk is asked."""


class Mortal:
    """A net that may die wherever the trainer asks it something."""

    def __init__(self, net: Any, moments: Iterator[bool]) -> None:
        self._net, self._moments = net, moments

    def __getattr__(self, name: str) -> Any:
        if next(self._moments):
            raise Killed
        return getattr(self._net, name)


def test_a_run_killed_at_random_moments_comes_to_the_same_bits(
    arrays: Arrays, cache: SampleCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = net_of(cache, SETTINGS, arrays, source())
    list(train(net, cache, tmp_path / "whole"))
    chance, killed = random.Random(5), 0
    moments = iter(lambda: chance.random() < 0.15, None)

    def write(*given: Any) -> None:
        if next(moments):
            raise Killed
        written(*given)

    written = trainer.write
    monkeypatch.setattr(trainer, "write", write)
    monkeypatch.setattr(trainer, "_SAVED_EVERY", -1.0)  # there is something to go on from
    mortal: Any = Mortal(net, moments)
    while True:
        try:
            *_, last = train(mortal, cache, tmp_path / "killed")
            break
        except Killed:
            killed += 1
    assert killed >= MOMENTS
    assert last.step == SETTINGS.steps
    for found, wanted in zip(parts(tmp_path / "killed"), parts(tmp_path / "whole"), strict=True):
        assert found == wanted


def parts(folder: Path) -> list[tuple[str, bytes]]:
    """All that is kept, bit by bit."""
    return [
        (f"{name} {part}", values.tobytes())
        for name in ("best.npz", "checkpoint.npz")
        for part, values in sorted(np.load(folder / name).items())
    ]


def test_it_learns_and_keeps_what_is_accepted_most(
    arrays: Arrays, cache: SampleCache, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, steps=60)
    net = net_of(cache, settings, arrays, source())
    first, *between, last = train(net, cache, tmp_path / "run")
    assert last.loss < 0.9 * first.loss
    told = [one.accepted for one in (*between, last) if one.accepted is not None]
    assert told == sorted(told)
    assert told[-1] > 0.3
    weights = {name: arrays.array(values) for name, values in weights_of(tmp_path / "run").items()}
    held = trainer._Split(cache, settings).validation
    assert trainer.accepted(net, weights, held) == told[-1]


def test_a_stop_is_between_two_steps_and_the_run_goes_on(
    arrays: Arrays, cache: SampleCache, tmp_path: Path
) -> None:
    net = net_of(cache, SETTINGS, arrays, source())
    asked = iter([False] * 7 + [True])
    stopped = list(train(net, cache, tmp_path, lambda: next(asked)))
    assert [one.step for one in stopped] == list(range(1, 8))
    assert next(train(net, cache, tmp_path)).step == 8


def test_losses_that_are_no_numbers_stop_it_and_the_best_is_kept(
    arrays: Arrays, cache: SampleCache, tmp_path: Path
) -> None:
    net = net_of(cache, SETTINGS, arrays, source())
    steps = train(net, cache, tmp_path)
    while next(steps).accepted is None:
        pass
    kept = weights_of(tmp_path)
    net.spread = net.spread * np.float32(np.nan)  # pyright: ignore
    with pytest.raises(DivergedError, match="stopped at step") as raised:
        list(steps)
    assert "is kept" in str(raised.value)
    for name, values in weights_of(tmp_path).items():
        assert np.isfinite(values).all()
        np.testing.assert_array_equal(values, kept[name])


def test_too_short_answers_are_nothing_to_train_on(
    arrays: Arrays, cache: SampleCache, tmp_path: Path
) -> None:
    net = net_of(cache, SETTINGS, arrays, source())
    with pytest.raises(UsageError, match="nothing to train on"):
        list(train(net, cache_of(tmp_path / "none", 0), tmp_path / "run"))


def test_the_rate_warms_up_and_falls_to_nothing() -> None:
    settings = replace(SETTINGS, steps=1000, rate=1.0)
    rates = [rate_at(step, settings) for step in range(1000)]
    assert rates[0] == pytest.approx(1 / 60)
    assert max(rates) == rates[60] == 1.0
    assert rates[60:] == sorted(rates[60:], reverse=True)
    assert rates[-1] < 1e-5
