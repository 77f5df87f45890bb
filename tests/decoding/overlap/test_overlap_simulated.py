"""What drafting ahead gains on simulated machines: the theory's figures, and never a loss."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.events import State
from decoding.overlap.overlap_cost import AtOnce
from tests.fixtures.overlapped_machine import OverlappedMachine, Pair, rate, theory
from tests.fixtures.simulated_text import bursts
from tests.fixtures.simulator import CURVES, curve

STEPS, AUTO_STEPS = 2000, 1000
REPLY = 400

OWN_DEVICE = curve({1: 1.0, 16: 1.15})
"""A target on a device whose passes cost nearly alike, as a GPU's do."""

FIXED: dict[str, tuple[Pair, int]] = {
    "a tenth of a pass, five tokens": (Pair(OWN_DEVICE, 0.8, 0.1), 5),
    "a tenth of a pass, three tokens": (Pair(OWN_DEVICE, 0.7, 0.1), 3),
    "a twentieth, eight tokens": (Pair(OWN_DEVICE, 0.9, 0.05), 8),
    "a fifth, two tokens": (Pair(OWN_DEVICE, 0.75, 0.2), 2),
    "half of a pass: made in part": (Pair(OWN_DEVICE, 0.8, 0.45), 4),
    "the drafter's second choice is never right": (Pair(OWN_DEVICE, 0.8, 0.1, second=0.0), 4),
    "both share memory": (Pair(OWN_DEVICE, 0.8, 0.1, at_once=AtOnce(1.3, 1.6)), 5),
    "a core each": (Pair(CURVES["stepped"], 0.8, 0.1, at_once=AtOnce(1.9, 1.9)), 4),
}


def at_fixed_length(pair: Pair, length: int, *, overlaps: bool) -> float:
    machine = OverlappedMachine(pair, overlaps=overlaps, fixed=length, noise=0.0)
    return rate(machine.run(steps=STEPS))


@pytest.mark.slow
@pytest.mark.parametrize("case", FIXED)
def test_the_gain_at_a_fixed_length_is_that_of_the_theory(case: str) -> None:
    pair, length = FIXED[case]
    expected, _ = theory(pair, length)
    in_turn = at_fixed_length(pair, length, overlaps=False)
    assert at_fixed_length(pair, length, overlaps=True) / in_turn == pytest.approx(
        expected, rel=0.03
    )


@pytest.mark.slow
def test_half_of_the_drafting_hidden_for_a_fourteenth_of_the_acceptance() -> None:
    """A drafter whose drafts can be made ahead is worth 7 % less acceptance where half is hidden.

    The tokens of a round fall from E(a) to E(0.93 a), and its time by half of the drafting.
    """
    length, share = 3, 0.8
    in_turn = Pair(OWN_DEVICE, share, 0.1)
    ahead = Pair(OWN_DEVICE, 0.93 * share, 0.1, second=0.4)
    gain, hidden = theory(ahead, length)
    assert hidden == pytest.approx(0.5, abs=0.02)

    def tokens(acceptance: float) -> float:
        return (1.0 - acceptance ** (length + 1)) / (1.0 - acceptance)

    expected = gain * tokens(0.93 * share) / tokens(share)
    measured = at_fixed_length(ahead, length, overlaps=True)
    measured /= at_fixed_length(in_turn, length, overlaps=False)
    assert measured == pytest.approx(expected, rel=0.03)


def auto_of(
    draws: Sequence[float], shares: Sequence[float], both: Sequence[AtOnce]
) -> dict[str, Pair]:
    return {
        f"{name}, {draw}, {share}, {at_once.target}": Pair(known, share, draw, at_once=at_once)
        for name, known in (("own device", OWN_DEVICE), ("stepped", CURVES["stepped"]))
        for draw in draws
        for share in shares
        for at_once in both
    }


AUTO = auto_of([0.1], [0.8], [AtOnce(1.0, 1.0), AtOnce(1.9, 1.9)])
MORE = auto_of(
    [0.05, 0.1, 0.3], [0.4, 0.6, 0.8], [AtOnce(1.0, 1.0), AtOnce(1.2, 1.5), AtOnce(1.9, 1.9)]
)


def speedups(
    pair: Pair, believed: AtOnce | None = None, right: NDArray[np.bool_] | None = None
) -> tuple[float, float]:
    """Of the controller that may draft ahead, and of the one that may not."""
    found: list[float] = []
    for overlaps in (True, False):
        machine = OverlappedMachine(pair, overlaps=overlaps, believed=believed, right=right)
        found.append(machine.replies(AUTO_STEPS, REPLY).speedup())
    return found[0], found[1]


@pytest.mark.parametrize(
    "name", [*AUTO, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)]
)
def test_auto_is_never_slower_for_the_choice(name: str) -> None:
    overlapped, in_turn = speedups((AUTO | MORE)[name])
    assert overlapped > 0.98 * in_turn


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.6, 0.8])
def test_auto_gains_where_the_drafter_has_a_device_of_its_own(share: float) -> None:
    pair = Pair(OWN_DEVICE, share, 0.1)
    overlapped, in_turn = speedups(pair)
    lengths = range(1, 9)
    rates = [
        sum(share**kept for kept in range(1 + length)) / (OWN_DEVICE[1 + length] + 0.1 * length)
        for length in lengths
    ]
    gains = [theory(pair, length)[0] for length in lengths]
    best = max(a * b for a, b in zip(rates, gains, strict=True)) / max(rates)
    assert best > 1.05
    assert overlapped > (1.0 + 0.6 * (best - 1.0)) * in_turn


@pytest.mark.slow
@pytest.mark.parametrize("believed", [AtOnce(1.0, 1.0), AtOnce(2.5, 2.5)])
@pytest.mark.parametrize("both", [AtOnce(1.0, 1.0), AtOnce(1.9, 1.9)])
def test_a_wrong_measurement_costs_little(believed: AtOnce, both: AtOnce) -> None:
    overlapped, in_turn = speedups(Pair(OWN_DEVICE, 0.8, 0.1, at_once=both), believed)
    assert overlapped > 0.98 * in_turn


def test_text_that_suits_the_drafter_in_turns_costs_nothing() -> None:
    pair = Pair(OWN_DEVICE, 0.6, 0.1, at_once=AtOnce(1.3, 1.3))
    overlapped, in_turn = speedups(pair, right=bursts(100, 3))
    assert overlapped > 0.98 * in_turn


def test_where_it_does_not_pay_it_is_parked_with_the_reason() -> None:
    pair = Pair(CURVES["stepped"], 0.8, 0.1, at_once=AtOnce(1.9, 1.9))
    machine = OverlappedMachine(pair, overlaps=True)
    machine.replies(200, REPLY)
    status = machine.controller.statuses[1]
    assert status.name == "overlap(model)"
    assert status.state is State.PARKED
    assert status.reason.startswith("slower than drafting in turn: it hides ")
    assert status.reason.endswith("the model's passes take 1.90 × as long meanwhile")


@pytest.mark.slow
def test_where_it_pays_it_is_on_and_learns_what_is_hidden() -> None:
    pair = Pair(OWN_DEVICE, 0.8, 0.1)
    machine = OverlappedMachine(pair, overlaps=True, believed=AtOnce(1.1, 1.1))
    machine.replies(1000, REPLY)
    assert machine.controller.statuses[1].state is State.ON
    assert machine.overlap.slowdown is not None
    assert machine.overlap.slowdown.factor == pytest.approx(1.0, abs=0.03)
