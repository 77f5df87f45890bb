"""What drafting ahead gains on simulated machines: the theory's figures, and never a loss."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.planning.risk_budget import RiskBudget
from tests.fixtures.overlapped_machine import AtOnce, OverlappedMachine, Pair, rate, theory
from tests.fixtures.simulated_text import bursts
from tests.fixtures.simulator import CURVES, PLAIN_SECONDS, curve

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


AUTO = auto_of([0.1], [0.8], [AtOnce(1.0, 1.0), AtOnce(1.2, 1.5)])
MORE = auto_of(
    [0.05, 0.1, 0.3], [0.4, 0.6, 0.8], [AtOnce(1.0, 1.0), AtOnce(1.1, 1.1), AtOnce(1.3, 1.3)]
)


def speedups(
    pair: Pair, text: Callable[[int], NDArray[np.bool_]] | None = None, texts: int = 3
) -> tuple[float, float]:
    """Of the drafter that may draft ahead, and of the one that may not: means of some texts.

    Where drafting hardly pays at all, chance parks it in one of them or not.
    """
    found: list[float] = []
    for overlaps in (True, False):
        machines = [
            OverlappedMachine(
                pair, overlaps=overlaps, right=text(seed) if text else None, seed=seed
            )
            for seed in range(texts)
        ]
        found.append(sum(one.replies(AUTO_STEPS, REPLY).speedup() for one in machines) / texts)
    return found[0], found[1]


@pytest.mark.parametrize(
    "name",
    [
        *AUTO,
        *(
            pytest.param(name, marks=pytest.mark.nightly if place % 5 else pytest.mark.slow)
            for place, name in enumerate(MORE)
        ),
    ],
)
def test_auto_is_never_slower_for_the_choice(name: str) -> None:
    overlapped, in_turn = speedups((AUTO | MORE)[name], texts=3 if name in AUTO else 6)
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


def test_text_that_suits_the_drafter_in_turns_costs_nothing() -> None:
    pair = Pair(OWN_DEVICE, 0.6, 0.1, at_once=AtOnce(1.3, 1.3))
    overlapped, in_turn = speedups(pair, lambda seed: bursts(100, 3 + seed))
    assert overlapped > 0.98 * in_turn


@pytest.mark.parametrize("both", [AtOnce(1.0, 1.0), AtOnce(1.5, 1.5)])
def test_the_budget_is_charged_what_the_steps_took(
    monkeypatch: pytest.MonkeyPatch, both: AtOnce
) -> None:
    """Also what a pass took longer for a round beside it, and what is waited for its end."""
    charged: list[float] = []
    monkeypatch.setattr(RiskBudget, "settle", lambda _, tokens, cost: charged.append(cost))
    machine = OverlappedMachine(Pair(OWN_DEVICE, 0.7, 0.3, at_once=both), overlaps=True, noise=0.0)
    machine.run(steps=300)
    assert len(charged) > 290
    assert sum(charged) * PLAIN_SECONDS == pytest.approx(machine.clock.now, rel=0.03)
