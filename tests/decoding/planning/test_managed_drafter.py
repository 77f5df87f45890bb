"""A drafter under guard: nonsense and failures drop it, and every judged token teaches it."""

from collections.abc import Callable, Sequence

import pytest

from decoding.draft import NO_DRAFT, Draft, KeepOn, PointMassLine, SampledLine
from decoding.estimation.acceptance import POSITION_PRIOR
from decoding.estimation.cost import DraftCost
from decoding.events import Step
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import point_mass
from tests.fixtures.drafters import IdleDrafter

N_VOCAB = 10
LIMIT = 4


class Scripted(IdleDrafter):
    """Proposes one draft again and again, or fails."""

    name = "scripted"

    def __init__(self, draft: Draft | Exception, *, is_free: bool = True) -> None:
        self.draft = draft
        self.is_free = is_free
        self.limits: list[int] = []

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self.limits.append(limit)
        if isinstance(self.draft, Exception):
            raise self.draft
        return self.draft


def certain(*tokens: int, confidence: float = 0.8, evidence: int = 3) -> Draft:
    """A deterministic draft."""
    count = len(tokens)
    return Draft(PointMassLine(tokens), "scripted", (confidence,) * count, (evidence,) * count)


def drawn(*tokens: int, confidence: float = 0.8, evidence: int = 3) -> Draft:
    """A draft drawn from distributions."""
    count = len(tokens)
    form = SampledLine(tokens, tuple(point_mass(token) for token in tokens))
    return Draft(form, "scripted", (confidence,) * count, (evidence,) * count)


def member_of(draft: Draft | Exception) -> ManagedDrafter:
    free = isinstance(draft, Exception) or not draft.is_sampled
    managed = ManagedDrafter(
        Scripted(draft, is_free=free), cost=None if free else DraftCost(1.0, 0.1)
    )
    managed.begin(temperature=0.0)
    return managed


def step(*tokens: int, drafter: str = "", drafted: int = 0, accepted: int = 0) -> Step:
    return Step(tokens, drafter, drafted, accepted, 0.0, 0.1, 0.1, 0.0)


def sent(*tokens: int, drafted: int, accepted: int) -> Step:
    return step(*tokens, drafter="scripted", drafted=drafted, accepted=accepted)


def learn_from(managed: ManagedDrafter, outcome: Step) -> None:
    managed.learn(managed.propose([1], LIMIT, N_VOCAB), outcome)


def judged(managed: ManagedDrafter) -> tuple[int, int]:
    """Tokens accepted and judged so far, few enough that none is forgotten."""
    return round(managed.estimates.judged.accepted), round(managed.estimates.judged.judged)


@pytest.mark.parametrize("make", [certain, drawn])
def test_a_sound_draft_is_handed_on(make: Callable[..., Draft]) -> None:
    draft = make(0, 9, 5)
    managed = member_of(draft)
    assert managed.propose([1], LIMIT, N_VOCAB) is draft
    assert managed.dropped == ""
    assert (managed.name, managed.drafter.limits) == ("scripted", [LIMIT])  # type: ignore[attr-defined]


def test_nothing_to_say_is_no_fault() -> None:
    managed = member_of(NO_DRAFT)
    assert managed.propose([1], LIMIT, N_VOCAB).tokens == ()
    assert managed.dropped == ""


LAW = point_mass(1)
ONE, TWO = PointMassLine((1,)), PointMassLine((1, 2))
NONSENSE = {
    "past the vocabulary": certain(1, N_VOCAB),
    "negative": certain(-1),
    "longer than allowed": certain(*range(LIMIT + 1)),
    "too little evidence": Draft(TWO, "scripted", (0.5, 0.5), (1,)),
    "no evidence": Draft(TWO, "scripted", (0.5, 0.5)),
    "too much evidence": Draft(ONE, "scripted", (0.5,), (1, 1)),
    "too little confidence": Draft(TWO, "scripted", (0.5,), (1, 1)),
    "no confidence": Draft(ONE, "scripted", (), (1,)),
    "too few distributions": Draft(SampledLine((1, 2), (LAW,)), "scripted", (0.5, 0.5), (1, 1)),
    "too many distributions": Draft(SampledLine((1,), (LAW, LAW)), "scripted", (0.5,), (1,)),
    "no distributions": Draft(SampledLine((1,), ()), "scripted", (0.5,), (1,)),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_drops_the_drafter(name: str) -> None:
    managed = member_of(NONSENSE[name])
    assert managed.propose([1], LIMIT, N_VOCAB) is NO_DRAFT
    assert managed.dropped == "it proposed nonsense"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("out of memory"), "it failed: out of memory"),
        (ValueError(), "it failed: ValueError"),
        (RuntimeError("first line\nand a trace"), "it failed: first line"),
    ],
)
def test_a_drafter_that_raises_is_dropped_with_the_reason(error: Exception, reason: str) -> None:
    managed = member_of(error)
    assert managed.propose([1], LIMIT, N_VOCAB) is NO_DRAFT
    assert managed.dropped == reason


def test_a_call_that_raises_gives_the_other_result() -> None:
    managed = member_of(NO_DRAFT)

    def fails() -> int:
        raise OSError("gone")

    assert managed.guarded(lambda: 7, 0) == 7
    assert managed.dropped == ""
    assert managed.guarded(fails, 0) == 0
    assert managed.dropped == "it failed: gone"


def test_an_interrupt_is_not_taken_for_a_failure() -> None:
    managed = member_of(NO_DRAFT)

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        managed.guarded(interrupted, None)
    assert managed.dropped == ""


def test_a_proposal_is_judged_although_nothing_was_sent() -> None:
    managed = member_of(certain(4, 5, 6))
    learn_from(managed, step(4))
    assert judged(managed) == (1, 1)
    learn_from(managed, step(5))
    assert judged(managed) == (1, 2)


def test_a_proposal_is_judged_by_what_another_drafter_brought() -> None:
    managed = member_of(certain(4, 5, 6))
    learn_from(managed, step(4, 5, 7, drafter="other", drafted=2, accepted=2))
    assert judged(managed) == (2, 3)


def test_tokens_beyond_those_sent_are_judged_too() -> None:
    """Of three proposed two were sent; the model's own third tells about the third."""
    managed = member_of(certain(4, 5, 6))
    learn_from(managed, sent(4, 5, 6, drafted=2, accepted=2))
    assert judged(managed) == (3, 3)


@pytest.mark.parametrize("make", [certain, drawn])
@pytest.mark.parametrize(
    ("tokens", "accepted", "expected"),
    [((4, 5, 6, 0), 3, (3, 3)), ((4, 5, 0), 2, (2, 3)), ((0,), 0, (0, 1))],
)
def test_what_was_sent_is_judged_up_to_the_first_miss(
    make: Callable[..., Draft], tokens: tuple[int, ...], accepted: int, expected: tuple[int, int]
) -> None:
    managed = member_of(make(4, 5, 6))
    learn_from(managed, sent(*tokens, drafted=3, accepted=accepted))
    assert judged(managed) == expected


@pytest.mark.parametrize("make", [certain, drawn])
def test_the_end_of_the_text_within_a_draft_is_no_miss(make: Callable[..., Draft]) -> None:
    """The reply ended with the accepted 5; what was drafted after it was never judged."""
    managed = member_of(make(4, 5, 6, 7))
    learn_from(managed, sent(4, 5, drafted=4, accepted=2))
    assert judged(managed) == (2, 2)


def test_a_drawn_draft_that_was_not_sent_teaches_nothing() -> None:
    """What it would have said at random does not tell how often it is accepted."""
    managed = member_of(drawn(4, 5))
    learn_from(managed, step(4))
    assert judged(managed) == (0, 0)


def test_estimates_start_at_the_confidence_and_follow_the_evidence() -> None:
    draft = Draft(PointMassLine((4, 5)), "scripted", (0.9, 0.3), (1, 2))
    managed = member_of(draft)
    assert managed.estimates.of_draft(draft) == [pytest.approx(0.9), pytest.approx(0.3)]
    for _ in range(200):
        learn_from(managed, step(4, 9, drafter="other", drafted=1, accepted=1))
    strong, weak = managed.estimates.of_draft(draft)
    assert strong > 0.9
    assert weak < 0.1


def test_estimates_of_another_temperature_are_apart() -> None:
    draft = certain(4)
    managed = member_of(draft)
    for _ in range(100):
        learn_from(managed, step(5))
    assert managed.estimates.of_draft(draft)[0] < 0.2
    for temperature in (0.3, 0.8, 1.5):
        managed.begin(temperature)
        assert managed.estimates.of_draft(draft)[0] == pytest.approx(0.8)
    managed.begin(0.0)
    assert managed.estimates.of_draft(draft)[0] < 0.2


def test_tokens_not_drawn_yet_are_known_by_their_place() -> None:
    managed = member_of(drawn(4, 5, 6))
    assert managed.estimates.by_position(0, 3) == [pytest.approx(POSITION_PRIOR)] * 3
    assert managed.estimates.by_position(5, 0) == []
    for _ in range(150):
        learn_from(managed, sent(4, 5, 9, drafted=3, accepted=2))
    first, second, third, beyond = managed.estimates.by_position(0, 4)
    assert first > 0.9
    assert second > 0.85
    assert third < 0.35
    assert managed.estimates.by_position(2, 2) == [third, beyond]


def test_a_place_never_reached_is_like_the_one_before() -> None:
    managed = member_of(drawn(4))
    for _ in range(100):
        learn_from(managed, sent(4, 9, drafted=1, accepted=1))
    places = managed.estimates.by_position(0, 15)
    assert places[0] > 0.9
    assert places[14] == pytest.approx(places[1]) == pytest.approx(places[0], abs=0.05)


def test_a_draft_that_cost_time_and_holds_nothing_counts_as_a_miss() -> None:
    managed = ManagedDrafter(
        Scripted(Draft(PointMassLine(()), "scripted", ())), cost=DraftCost(1.0, 0.1)
    )
    managed.begin(temperature=0.0)
    before = managed.estimates.at_position(0)
    managed.estimates.add_silence()
    assert managed.estimates.at_position(0) < before
    managed.learn(NO_DRAFT, step(7))
    assert not managed.estimates.is_untried


def test_a_deterministic_drafter_that_costs_time_is_known_by_place() -> None:
    managed = ManagedDrafter(Scripted(certain(1, 2)), cost=DraftCost(1.0, 0.1))
    managed.begin(temperature=0.0)
    before = managed.estimates.by_position(0, 2)
    learn_from(managed, sent(1, 7, drafted=2, accepted=1))
    assert managed.estimates.at_position(1) < before[1]
    assert managed.estimates.at_position(1) < managed.estimates.at_position(0)


def test_a_drafter_that_had_nothing_to_say_is_not_said_to_have_been_wrong() -> None:
    """It counts against it, as it took its time, but no token of it was judged."""
    managed = member_of(drawn(1))
    managed.estimates.add_silence()
    managed.learn(NO_DRAFT, step(1))
    assert managed.estimates.at_position(0) < POSITION_PRIOR
    assert managed.estimates.recalled is None
    learn_from(managed, sent(2, drafted=1, accepted=0))
    assert managed.estimates.recalled == 0.0
