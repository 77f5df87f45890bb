"""Drafters that take part in one reply: polled first, weighed like any others, gone after it."""

from collections.abc import Sequence

from decoding.draft import Draft, KeepOn
from decoding.drafters.predicted_text import PredictedText
from decoding.estimation.cost import CostModel, Measured
from decoding.events import Step
from decoding.planning.controller import Controller
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.forms import certain
from tests.fixtures.simulator import PLAIN_SECONDS, Curve, costs_of, curve

SAMPLER = Sampler(SamplingSettings(0.0))
CHEAP = CostModel(Measured({1: 1.0, 16: 1.1}))
TWO_CORES = curve({1: 1.0, 2: 2.08, 3: 2.41, 4: 2.6, 8: 4.18, 16: 7.28})
"""Passes over a body of 1.1 billion parameters in Q8_0, measured on two cores."""

TEXT = [token * 7 % 1000 for token in range(300)]


class Sure(IdleDrafter):
    """Says the same as any other of its kind."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del history, keep_on
        self.asked += 1
        return certain((7,) * min(limit, 3), self.name, 0.95)


def controlled(*drafters: Sure) -> Controller:
    managed = [ManagedDrafter(drafter) for drafter in drafters]
    return Controller(managed, CHEAP, 1000, lambda: 0.0)


def test_it_drafts_alone_where_there_are_no_others() -> None:
    own = ManagedDrafter(Sure("own"))
    controller = controlled()
    controller.add([own])
    controller.begin([1], SAMPLER)
    assert controller.propose([1, 7], 8).drafter == "own"
    assert [status.name for status in controller.statuses] == ["own"]


def test_of_equal_drafts_its_own_is_sent() -> None:
    controller = controlled(Sure("session"))
    controller.add([ManagedDrafter(Sure("own"))])
    controller.begin([1], SAMPLER)
    assert controller.propose([1, 7], 8).drafter == "own"


def test_it_is_never_asked_after_it_left() -> None:
    session, own = Sure("session"), Sure("own")
    controller, managed = controlled(session), ManagedDrafter(own)
    controller.add([managed])
    controller.begin([1], SAMPLER)
    controller.propose([1, 7], 8)
    asked = own.asked
    controller.remove([managed])
    controller.observe(Step((7,), "own", 3, 0, 0.0, 1.0, 1.0, 1.0))
    controller.begin([1], SAMPLER)
    assert controller.propose([1, 7], 8).drafter == "session"
    assert [status.name for status in controller.statuses] == ["session"]
    assert own.asked == asked > 0


def speedup(predicted: Sequence[int], known: Curve) -> float:
    """Of a reply of TEXT with a prediction, on a machine of these costs, from a cold start."""
    controller = Controller([], costs_of(known), 3000, lambda: 0.0)
    controller.add([ManagedDrafter(PredictedText(predicted, begins_at=1))])
    history, cost = [5000, TEXT[0]], 0.0
    controller.begin(history[:1], SAMPLER)
    while len(history) <= len(TEXT):
        controller.commit(history)
        rest = TEXT[len(history) - 1 :]
        draft = controller.propose(history, len(rest) - 1)
        right = [mine == its for mine, its in zip(draft.tokens, rest, strict=False)]
        accepted = [*right, False].index(False)
        spent = known[1 + len(draft)]
        cost += spent
        tokens = tuple(rest[: accepted + 1])
        seconds = spent * PLAIN_SECONDS
        step = Step(tokens, draft.drafter, len(draft), accepted, 0.0, seconds, seconds, 0.0)
        controller.observe(step)
        history.extend(tokens)
    return (len(TEXT) - 1) / cost


def test_a_one_line_edit_is_as_fast_as_promised() -> None:
    for start in range(20, 280, 20):
        edited = [*TEXT[:start], 2000, 2001, *TEXT[start + 5 :]]
        assert speedup(edited, TWO_CORES) >= 1.8


def test_a_wrong_prediction_costs_next_to_nothing() -> None:
    other = [token * 11 % 1000 for token in range(300)]
    assert speedup(other, TWO_CORES) >= 0.98
    assert speedup([], TWO_CORES) == 1.0
