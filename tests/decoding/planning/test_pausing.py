"""Why a drafter is on, paused or off, in words and figures a user can check."""

import pytest

from decoding.estimation.acceptance import Acceptance
from decoding.estimation.cost import CostModel, DraftCost, Measured, TreeSize
from decoding.planning.draft_length import break_even
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.pausing import DrafterStatus, State, drafter_status, overall
from tests.fixtures.drafters import IdleDrafter

CHEAP = CostModel(Measured({1: 1.0, 16: 1.2}))
STEPPED = CostModel(Measured({1: 1.0, 2: 1.89, 3: 2.5, 4: 2.3, 8: 4.0, 16: 6.1}))
HOPELESS = CostModel(Measured({1: 1.0, 2: 2.5, 16: 40.0}))


class Silent(IdleDrafter):
    """A drafter that is only asked for its name."""

    def __init__(self, name: str, *, is_free: bool) -> None:
        self.name = name
        self.is_free = is_free


def free() -> ManagedDrafter:
    return ManagedDrafter(Silent("lookup", is_free=True))


def drafter_model(draw_cost: float) -> ManagedDrafter:
    """A drafter model whose tokens cost a share of a plain step of 1 second."""
    managed = ManagedDrafter(Silent("model", is_free=False), cost=DraftCost(draw_cost, 0.0))
    managed.begin(temperature=0.0)
    return managed


def found(managed: ManagedDrafter, accepted: int, judged: int) -> ManagedDrafter:
    for i in range(judged):
        managed.estimates.judged.add(i < accepted)
    return managed


def test_a_free_drafter_is_on_until_long_nothing_was_worth_sending() -> None:
    managed = free()
    assert drafter_status(managed, STEPPED) == DrafterStatus("lookup", State.ON)
    managed.unsent = 31
    assert drafter_status(managed, STEPPED).state is State.ON
    managed.unsent = 32
    assert drafter_status(managed, STEPPED).state is State.PAUSED


def test_a_drafter_model_is_on_where_it_is_expected_to_pay() -> None:
    assert drafter_status(drafter_model(0.05), CHEAP) == DrafterStatus("model", State.ON)
    assert drafter_status(drafter_model(0.5), STEPPED).state is State.PAUSED


def test_a_paused_drafter_names_what_it_needs_and_what_it_has() -> None:
    managed = found(drafter_model(0.1), accepted=1, judged=4)
    share = managed.estimates.judged.accepted / managed.estimates.judged.judged
    needed = break_even(STEPPED, 0.1)
    reason = drafter_status(managed, STEPPED).reason
    assert reason == f"slower than plain: needs acceptance {needed:.2f}, has {share:.2f}"
    assert 0.70 < needed < 0.80


def test_what_a_busy_machine_measured_is_told_as_such() -> None:
    busy = CostModel(Measured(STEPPED.points, unsure={2: 1.0}))
    doubt = " (costs measured on a busy machine)"
    for managed, costs in ((drafter_model(0.1), busy), (drafter_model(0.1), STEPPED)):
        reason = drafter_status(managed, costs).reason
        assert reason.endswith(doubt) is not costs.is_steady
    assert managed.cost is not None
    managed.cost.is_steady = False
    assert drafter_status(managed, STEPPED).reason == reason + doubt


KNOWN = {"greedy:drawn": (4.1, 10.0), "warm:drawn": (3.0, 10.0)}


@pytest.mark.parametrize(
    ("counts", "is_trial", "temperature", "end"),
    [
        ({}, False, 0.0, "untried, 0.65 assumed"),
        (KNOWN, True, None, "a trial expects 0.30"),  # before any reply
        (KNOWN, True, 0.0, "a trial expects 0.41"),
        (KNOWN, False, 0.0, "had 0.41"),
        (KNOWN, False, 1.0, "untried, 0.65 assumed"),
    ],
)
def test_a_paused_drafter_says_what_is_known_of_it(
    counts: dict[str, tuple[float, float]], is_trial: bool, temperature: float | None, end: str
) -> None:
    guess = Acceptance(counts, is_trial=is_trial)
    managed = ManagedDrafter(Silent("model", is_free=False), guess, DraftCost(0.1, 0.0))
    if temperature is not None:
        managed.begin(temperature)
    assert drafter_status(managed, STEPPED).reason.endswith(end)


def test_a_few_tokens_that_were_accepted_do_not_contradict_that_it_is_paused() -> None:
    status = drafter_status(found(drafter_model(0.1), accepted=3, judged=3), STEPPED)
    assert status.state is State.PAUSED
    assert status.reason.endswith("has 1.00 so far and is expected to have less")


def test_a_judged_token_ends_the_trial() -> None:
    guess = Acceptance({"greedy:drawn": (4.1, 10.0)}, is_trial=True)
    guess.add("greedy:drawn", accepted=True)
    assert not guess.is_trial


def test_where_no_acceptance_would_do_the_reason_says_so() -> None:
    for managed in (found(drafter_model(0.1), 4, 4), drafter_model(0.1)):
        reason = drafter_status(managed, HOPELESS).reason
        assert reason == "slower than plain here even if every drafted token were accepted"


def test_a_dropped_drafter_is_off_for_its_reason() -> None:
    for managed in (free(), drafter_model(0.01)):
        managed.drop("it proposed nonsense")
        assert drafter_status(managed, CHEAP) == DrafterStatus(
            managed.name, State.OFF, "it proposed nonsense"
        )


def test_dearer_passes_park_what_was_on() -> None:
    managed = drafter_model(0.05)
    costs = CostModel(Measured({1: 1.0, 2: 1.2, 16: 3.0}))
    assert drafter_status(managed, costs).state is State.ON
    for _ in range(400):
        for n in (2, 3, 4):
            costs.observe(1, 1.0)
            costs.observe(n, 4.0)
    assert drafter_status(managed, costs).state in (State.ON, State.PAUSED)
    managed.cost = DraftCost(3.0, 0.0)
    assert drafter_status(managed, costs).state is State.PAUSED


ON = DrafterStatus("a", State.ON)
PAUSED = DrafterStatus("b", State.PAUSED, "slower")
OFF = DrafterStatus("c", State.OFF, "broken")


@pytest.mark.parametrize(
    ("standings", "expected"),
    [
        ([], (State.OFF, "")),
        ([ON], (State.ON, "")),
        ([ON, PAUSED, OFF], (State.ON, "b: slower; c: broken")),
        ([OFF, PAUSED], (State.PAUSED, "c: broken; b: slower")),
        ([OFF], (State.OFF, "c: broken")),
    ],
)
def test_the_whole_is_as_its_best_drafter(
    standings: list[DrafterStatus], expected: tuple[State, str]
) -> None:
    assert overall(standings) == expected


def test_what_takes_longer_passes_than_were_measured_says_so() -> None:
    managed = ManagedDrafter(
        Silent("tree", is_free=True), cost=DraftCost(0.0, 0.0), tree=TreeSize(3, 20)
    )
    managed.begin(temperature=0.0)
    found = drafter_status(managed, STEPPED)
    assert found.state is State.PAUSED
    assert "longer than the 16 tokens" in found.reason
    assert (
        drafter_status(managed, CostModel(Measured({1: 1.0, 16: 1.2, 64: 1.4}))).state is State.ON
    )


def test_what_a_draft_costs_whatever_its_length_counts_too() -> None:
    costs = CostModel(Measured({1: 1.0, 4: 1.25}))
    cheap, dear = (
        ManagedDrafter(IdleDrafter(), cost=DraftCost(0.0, 0.0, begin), prior=0.8)
        for begin in (0.2, 3.0)
    )
    assert drafter_status(cheap, costs).state is State.ON
    assert drafter_status(dear, costs).state is State.PAUSED
    assert break_even(costs) < break_even(costs, 0.0, 0.2) < 0.5
    assert break_even(costs, 0.0, 3.0) == float("inf")
