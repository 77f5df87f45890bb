"""Drafting ahead loses no more than the controller may risk, whatever becomes faster or slower."""

from collections.abc import Callable

import pytest

from decoding.estimation.cost import DraftCost
from decoding.overlap.overlap_cost import AtOnce, Slowdown
from tests.fixtures.overlapped_machine import OverlappedMachine, Pair
from tests.fixtures.simulator import CURVES, PLAIN_SECONDS, READ_SHARE, Curve

STEPS = 400
SHARE, ONCE = 0.015, 5.5
"""Bound of all replies together: share of the tokens, and plain steps (controller.md)."""

NEVER_SLOWED = AtOnce(1.0, 1.0)
"""What the controller believes at first: that neither slows the other, which is wrong."""

Load = Callable[[int], float]
LOADS: dict[str, Load] = {
    "steady": lambda _: 1.0,
    "slower": lambda step: 1.0 if step < 150 else 2.0,
    "faster": lambda step: 2.0 if step < 150 else 1.0,
    "in turns": lambda step: 2.0 if step // 50 % 2 else 1.0,
    "ever slower": lambda step: 1.0 + step / 400,
    "ever faster": lambda step: 2.0 - step / 400,
}


def lost(pair: Pair, target: Load, drafter: Load, seed: int) -> float:
    """Plain steps lost over plain decoding at the same load, beyond what may be lost."""
    machine = OverlappedMachine(pair, overlaps=True, believed=NEVER_SLOWED, seed=seed)

    def at(step: int) -> tuple[Curve, float]:
        draw = pair.draw * PLAIN_SECONDS * drafter(step)
        machine.context.cost = DraftCost(draw, draw * READ_SHARE)
        return pair.passes, target(step)

    log = machine.run(steps=STEPS, at=at)
    spent = sum(cost / plain for cost, plain in zip(log.costs, log.plain, strict=True))
    return spent - (1.0 + SHARE) * sum(log.tokens) - ONCE


def pair(share: float, at_once: float) -> Pair:
    """On a processor's curve, where drafts barely pay."""
    return Pair(CURVES["stepped"], share, 0.1, at_once=AtOnce(at_once, at_once))


@pytest.mark.parametrize("load", ["slower", "faster", "in turns"])
def test_no_more_is_lost_than_may_be(load: str) -> None:
    assert lost(pair(0.75, 1.3), LOADS[load], LOADS["steady"], seed=0) <= 0.0


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["steady", "slower", "faster", "in turns"])
@pytest.mark.parametrize("target", LOADS)
@pytest.mark.parametrize("share", [0.6, 0.75, 0.85])
@pytest.mark.parametrize("at_once", [1.0, 1.3, 1.9])
def test_no_more_is_lost_than_may_be_in_any_pair(
    share: float, at_once: float, target: str, drafter: str
) -> None:
    """But for one draft whose passes take 1.9 times as long as believed."""
    unforeseen = 5.0 if at_once > 1.5 else 0.0
    for seed in range(2):
        assert lost(pair(share, at_once), LOADS[target], LOADS[drafter], seed) <= unforeseen


def test_control_more_is_lost_where_no_slowdown_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slowdown, "observe", lambda *_: 1.0)
    assert lost(pair(0.85, 1.9), LOADS["steady"], LOADS["slower"], seed=0) > 0.0
