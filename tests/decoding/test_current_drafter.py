"""The drafter of a reply may change between steps, and observes every step that it drafted."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pytest

from decoding.draft import Draft, Drafter, KeepOn, PointMassLine
from decoding.events import Event, Finish, FinishReason, Prefill, Step
from decoding.generation import CurrentDrafter, Limits, always, generate
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.drafters import IdleDrafter

if TYPE_CHECKING:
    import numpy as np

    from tests.decoding.conftest import FakeContext

GREEDY = SamplingSettings(temperature=0.0)
LIMITS = Limits(6, frozenset())


class Recorder(IdleDrafter):
    """Drafts one token at every step, and notes what it is asked and told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[tuple[str, int]] = []
        self.observed: list[Step] = []

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self.calls.append(("begin", len(history)))

    def read(self, history: Sequence[int]) -> Iterator[int]:
        self.calls.append(("read", len(history)))
        return iter(())

    def commit(self, history: Sequence[int]) -> None:
        self.calls.append(("commit", len(history)))

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self.calls.append(("propose", len(history)))
        return Draft(PointMassLine((0,)), self.name, (0.5,), (0,))

    def observe(self, step: Step) -> None:
        self.observed.append(step)


@pytest.fixture
def context(
    table: Callable[..., "np.ndarray"], fake_context: Callable[..., "FakeContext"]
) -> "FakeContext":
    return fake_context(table(3))


def test_it_observes_each_step_before_the_step_is_yielded(context: "FakeContext") -> None:
    drafter = Recorder("one")
    steps: list[Step] = []
    for event in generate(context, [1, 2], GREEDY, LIMITS, drafters=always(drafter)):
        if isinstance(event, Step):
            steps.append(event)
            assert drafter.observed == steps
    assert sum(step.drafted for step in steps) > 0


def test_one_that_takes_over_in_mid_reply_begins_and_reads_there(context: "FakeContext") -> None:
    first, second = Recorder("first"), Recorder("second")
    current: list[Drafter | None] = [first]
    steps: list[Step] = []
    for event in generate(context, [1, 2], GREEDY, LIMITS, drafters=lambda: current[0]):
        if isinstance(event, Step):
            steps.append(event)
            current[0] = (first, None, second)[min(len(steps) // 2, 2)]
    taken_over = 2 + sum(len(step.tokens) for step in steps[:4])
    assert first.calls[:4] == [("begin", 2), ("read", 2), ("commit", 3), ("propose", 3)]
    assert first.observed == steps[:2]
    assert [step.drafter for step in steps[2:4]] == ["", ""]
    assert second.calls[:3] == [(call, taken_over) for call in ("begin", "read", "commit")]
    assert second.observed == steps[4:]


class InPieces(Recorder):
    """Reads in three pieces, and notes how many it has read."""

    read_pieces = 0

    def read(self, history: Sequence[int]) -> Iterator[int]:
        self.calls.append(("read", len(history)))
        for self.read_pieces in range(1, 4):
            yield self.read_pieces


@pytest.mark.parametrize("is_followed", [False, True])
def test_one_that_is_replaced_while_it_reads_does_not_go_on(
    context: "FakeContext", is_followed: bool
) -> None:
    """It is closed then: its engine would write to memory that was freed."""
    first, second = InPieces("first"), InPieces("second")
    current: list[Drafter | None] = [first]
    for event in generate(context, [1, 2], GREEDY, LIMITS, drafters=lambda: current[0]):
        if isinstance(event, Prefill) and first.read_pieces:
            current[0] = second if is_followed else None
    assert first.calls == [("begin", 2), ("read", 2)]
    assert first.read_pieces == 1
    if is_followed:
        assert second.calls[:4] == [("begin", 2), ("read", 2), ("commit", 3), ("propose", 3)]
    assert second.read_pieces == (3 if is_followed else 0)


def test_a_reply_is_stopped_while_one_that_takes_over_reads(context: "FakeContext") -> None:
    """A long text takes it minutes."""
    first, second = Recorder("first"), InPieces("second")
    current: list[Drafter] = [first]
    events: list[Event] = []
    for event in generate(
        context,
        [1, 2],
        GREEDY,
        LIMITS,
        drafters=lambda: current[0],
        is_cancelled=lambda: second.read_pieces > 0,
    ):
        events.append(event)
        if isinstance(event, Step):
            current[0] = second
    assert second.read_pieces == 1
    assert events[-1] == Finish(FinishReason.CANCELLED)
    assert second.calls == [("begin", 3), ("read", 3)]


def test_the_end_of_a_reply_reaches_the_drafter_that_is_current(context: "FakeContext") -> None:
    first, last = Recorder("first"), Recorder("last")
    current: list[Drafter] = [first]
    count = 2
    for event in generate(context, [1, 2], GREEDY, LIMITS, drafters=lambda: current[0]):
        if isinstance(event, Step):
            count += len(event.tokens)
            if count == 2 + LIMITS.max_tokens:
                current[0] = last
    assert first.calls[-1][1] < count
    assert last.calls == [("begin", count), ("read", count), ("commit", count)]
    assert last.observed == []


def test_the_provider_is_asked_once_per_step() -> None:
    drafter, asked = Recorder("one"), 0

    def provider() -> Drafter:
        nonlocal asked
        asked += 1
        return drafter

    current = CurrentDrafter(provider, Sampler(GREEDY))
    assert list(current.read([1])) == []
    for length in range(2, 5):
        assert current.commit([1] * length) is drafter
        current.observe(Step((1,), "one", 1, 0, 0.0, 1.0, 1.0, 0.0))
    assert asked == 4
    assert [call for call, _ in drafter.calls] == ["begin", "read", "commit", "commit", "commit"]
