"""Under turns every drafter drafts, alone and beside others, whatever that costs."""

from decoding.draft import Draft
from decoding.estimation.cost import CostModel, DraftCost, Measured
from decoding.events import Step
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.turns import TakingTurns
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.drafters import Rehearsed

TEXT = [0, *range(10, 300, 10)]
DEAR_PASSES = CostModel(Measured({1: 1.0, 16: 16.0}))


class Dear(Rehearsed):
    is_free = False


def everyone() -> TakingTurns:
    """Two free drafters that seldom agree and two that cost a plain step a token: nothing pays."""
    free = [ManagedDrafter(Rehearsed("odd", TEXT, 1)), ManagedDrafter(Rehearsed("even", TEXT, 2))]
    dear = [
        ManagedDrafter(Dear(name, TEXT, 3), cost=DraftCost(1.0, 1.0)) for name in ("one", "other")
    ]
    return TakingTurns(Controller([*free, *dear], DEAR_PASSES, 1000))


def drafts(controller: TakingTurns, count: int, reply: int = 0) -> list[Draft]:
    controller.begin([0], Sampler(SamplingSettings()))
    controller.start(reply)
    return [controller.propose([0], 15) for _ in range(count)]


def test_everyone_drafts_alone() -> None:
    assert [draft.drafter for draft in drafts(everyone(), 4)] == ["odd", "even", "one", "other"]


def test_a_reply_begins_with_the_turn_of_its_number() -> None:
    controller = everyone()
    assert [drafts(controller, 1, reply)[0].drafter for reply in (2, 3, 4, 6)] == [
        "one", "other", "odd", "one",
    ]  # fmt: skip


def test_lengths_change_from_round_to_round() -> None:
    found = drafts(everyone(), 20)
    assert len({len(draft) for draft in found if draft.drafter == "even"}) > 1
    assert max(len(draft) for draft in found if not draft.is_tree) >= 4


def test_what_it_costs_and_what_came_of_it_changes_nothing() -> None:
    controller = everyone()
    expected = [draft.drafter for draft in drafts(controller, 5)]
    for draft in drafts(controller, 20):
        rejected = Step((999,), draft.drafter, draft.drafted, 0, 9.0, 9.0, 18.0, 0.0)
        controller.observe(rejected)
    assert [draft.drafter for draft in drafts(controller, 5)] == expected
