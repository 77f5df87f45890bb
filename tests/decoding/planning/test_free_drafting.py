"""Free drafters are asked as often as that pays, and noticed soon when they begin to be right."""

from collections.abc import Sequence
from typing import NoReturn

import pytest

from decoding.constraint.grammar import ConstraintError
from decoding.draft import NO_DRAFT, Draft, KeepOn
from decoding.estimation.cost import CostModel, Measured
from decoding.events import Step
from decoding.planning.controller import Controller
from decoding.planning.free_drafting import FreeDrafting
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.planning.polling import PollSchedule
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.clock import Clock
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.forms import certain
from tests.fixtures.pieces import END, Pieces, constraint_on


def asked(asking: PollSchedule, steps: range, *, is_promising: bool = False) -> int:
    """How often it was due in some steps, if each question promises something or nothing."""
    count = 0
    for step in steps:
        if asking.due <= step:
            count += 1
            asking.settle(step, is_promising=is_promising)
    return count


def test_what_promises_to_pay_is_asked_at_every_step() -> None:
    assert asked(PollSchedule(), range(500), is_promising=True) == 500


def test_what_promises_nothing_is_asked_seldom() -> None:
    asking = PollSchedule()
    assert asked(asking, range(16)) == 16
    assert 45 <= asked(asking, range(16, 400)) <= 50


def test_what_promises_something_is_asked_again_at_once() -> None:
    asking = PollSchedule()
    asked(asking, range(500))
    asking.settle(504, is_promising=False)
    assert asking.due > 505
    asking.settle(504, is_promising=True)
    assert asking.due == 505


def test_what_is_asked_seldom_is_asked_together() -> None:
    first, second = PollSchedule(), PollSchedule()
    asked(first, range(500))
    asked(second, range(3, 500))
    assert first.due == second.due


def test_a_new_reply_is_looked_at_more_closely() -> None:
    asking = PollSchedule()
    asked(asking, range(500))
    asking.begin(500)
    assert asked(asking, range(500, 516)) == 16


SAMPLER = Sampler(SamplingSettings(0.0))
COSTS = {1: 1.0, 2: 1.2, 8: 1.6}


class Echo(IdleDrafter):
    """Says nothing, or what the model is about to say; each question takes its time."""

    name = "echo"
    is_free = True

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.asked = 0
        self._clock = clock
        self._seconds = seconds
        self.knows_from = 1_000_000
        """Tokens of the history from which it knows what the model says."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on
        self.asked += 1
        self._clock.now += self._seconds
        if len(history) < self.knows_from:
            return NO_DRAFT
        return certain((7,) * min(limit, 4), self.name, 0.9)


def run(controller: Controller, steps: int) -> list[int]:
    """The tokens drafted at each step of a reply in which the model says 7 all the time."""
    history = [7]
    controller.begin(history, SAMPLER)
    found: list[int] = []
    for _ in range(steps):
        controller.commit(history)
        draft = controller.propose(history, 8)
        tokens = (*draft.tokens, 7)
        passed = controller.costs.seconds(len(tokens))
        drafted = len(draft)
        step = Step(tokens, draft.drafter, drafted, drafted, 0.0, passed, passed, 0.0)
        controller.observe(step)
        history.extend(tokens)
        found.append(drafted)
    return found


def controlled(seconds: float) -> tuple[Echo, Controller]:
    clock = Clock(0.0)
    echo = Echo(clock, seconds)
    return echo, Controller([ManagedDrafter(echo)], CostModel(Measured(COSTS)), 10, clock)


def test_asking_in_vain_takes_little_of_a_step() -> None:
    echo, controller = controlled(0.02)
    run(controller, 300)
    assert 0 < 0.02 * echo.asked < 0.005 * 300


def test_what_is_right_again_is_noticed_within_eight_steps_and_asked_at_each() -> None:
    echo, controller = controlled(0.02)
    echo.knows_from = 300
    drafted = run(controller, 400)
    noticed = drafted.index(4)
    assert 299 < noticed <= 299 + 8
    assert echo.asked - 100 < 100
    assert drafted[noticed:].count(0) <= 2


def test_what_is_dropped_is_asked_no_more() -> None:
    echo, controller = controlled(0.0)
    run(controller, 10)
    controller.drafters[0].drop("it failed")
    run(controller, 10)
    assert echo.asked == 10


def test_a_draft_ends_before_the_first_token_that_may_not_follow() -> None:
    """Also one that may not begin, which is then no proposal at all."""
    pieces = Pieces([b"a", b"b", END])
    for grammar, count in {"aab": 2, "aaaaaa": 4, "ba": 0}.items():
        sampler = Sampler(
            SamplingSettings(0.0), constraint=constraint_on(pieces, grammar), prompt_tokens=1
        )
        managed = ManagedDrafter(Says((0, 0, 0, 0)))
        free = FreeDrafting(CostModel(Measured(COSTS)), pieces.n_vocab)
        free.begin(sampler)
        proposed = free.poll([managed], [0], 4)
        assert [draft.tokens for _, draft, _ in proposed] == [(0,) * count] * (count > 0)


def test_a_draft_that_the_grammar_cannot_be_followed_along_is_no_proposal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model may say something else, along which it can."""

    def fails(*_: object) -> NoReturn:
        raise ConstraintError("too many states")

    constraint = constraint_on(Pieces([b"a", b"b", END]), "aab")
    monkeypatch.setattr(constraint, "count_allowed", fails)
    managed = ManagedDrafter(Says((0, 0)))
    free = FreeDrafting(CostModel(Measured(COSTS)), 3)
    free.begin(Sampler(SamplingSettings(0.0), constraint=constraint, prompt_tokens=1))
    assert not free.poll([managed], [0], 4)
    assert not managed.dropped


class Says(IdleDrafter):
    """The same tokens always."""

    name = "says"
    is_free = True

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self._tokens = tokens

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        return certain(self._tokens[:limit], self.name, 0.9)
