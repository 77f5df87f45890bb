"""Free drafters are asked as often as that pays, and noticed soon when they begin to be right."""

from collections.abc import Sequence
from typing import NoReturn

import pytest

from decoding.constraint.grammar import ConstraintError
from decoding.draft import NO_DRAFT, Draft, KeepOn
from decoding.estimation.cost import CostModel
from decoding.events import Step
from decoding.planning.controller import Controller
from decoding.planning.free_drafting import FreeDrafting, PollSchedule
from decoding.planning.managed_drafter import ManagedDrafter
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.clock import Clock
from tests.fixtures.drafters import IdleDrafter
from tests.fixtures.forms import certain
from tests.fixtures.pieces import END, Pieces, constraint_on


def asked(asking: PollSchedule, price: float, steps: range, gained: float = 0.0) -> int:
    """How often it was due in some steps, if each question gains something or nothing."""
    count = 0
    for step in steps:
        if asking.due <= step:
            count += 1
            asking.settle(step, gained, price, is_running=gained > 0.0)
    return count


def test_what_costs_nothing_is_asked_at_every_step() -> None:
    assert asked(PollSchedule(), 0.0, range(500)) == 500


def test_what_gains_is_asked_at_every_step() -> None:
    assert asked(PollSchedule(), 0.02, range(500), gained=0.5) == 500


def test_what_gains_nothing_costs_less_and_less() -> None:
    asking, price = PollSchedule(), 0.002
    first, last = asked(asking, price, range(200)), asked(asking, price, range(200, 400))
    assert last < first < 100
    assert 0 < price * last / 200 < 0.005


def test_the_dearer_the_question_the_seldomer() -> None:
    intervals = [PollSchedule().interval(price) for price in (0.0001, 0.001, 0.005, 0.1)]
    assert intervals == sorted(intervals)
    assert intervals[0] == 1 < intervals[-1]


def test_what_was_sent_is_asked_again_at_once() -> None:
    asking = PollSchedule()
    asked(asking, 0.05, range(500))
    asking.settle(504, -1.0, 0.05, is_running=False)
    assert asking.due > 505
    asking.settle(504, -1.0, 0.05, is_running=True)
    assert asking.due == 505


def test_what_is_asked_seldom_is_asked_together() -> None:
    first, second = PollSchedule(), PollSchedule()
    asked(first, 0.05, range(500))
    asked(second, 0.05, range(3, 500))
    assert first.due == second.due


def test_a_new_reply_is_looked_at_more_closely() -> None:
    asking, price = PollSchedule(), 0.002
    asked(asking, price, range(500))
    before = asking.interval(price)
    asking.begin()
    assert asking.interval(price) < before
    assert asking.due == 0


@pytest.mark.parametrize("price", [0.001, 0.005, 0.015])
def test_the_interval_is_where_asking_and_late_notice_cost_least(price: float) -> None:
    asking = PollSchedule()
    chosen = asking.interval(price)

    def lost(interval: int) -> float:
        """A step, where 0.005 tokens a step are gained in runs of 8 steps."""
        return price / interval + 0.005 / 8.0 * (interval - 1) / 2.0

    assert lost(chosen) <= 1.001 * min(map(lost, (1, 2, 4, 8, 16)))


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
    return echo, Controller([ManagedDrafter(echo)], CostModel(COSTS), 10, clock)


@pytest.mark.parametrize("seconds", [0.0, 1e-4])
def test_where_a_step_is_long_it_is_asked_at_every_step(seconds: float) -> None:
    echo, controller = controlled(seconds)
    run(controller, 300)
    assert echo.asked == 300


def test_where_a_step_is_short_asking_in_vain_takes_little_of_it() -> None:
    echo, controller = controlled(0.02)
    run(controller, 300)
    assert 0 < 0.02 * echo.asked < 0.01 * 300


def test_what_is_right_again_is_noticed_within_sixteen_steps_and_asked_at_each() -> None:
    echo, controller = controlled(0.02)
    echo.knows_from = 300
    drafted = run(controller, 400)
    noticed = drafted.index(4)
    assert 299 < noticed <= 299 + 16
    assert echo.asked - 100 < 100
    assert drafted[noticed:].count(0) <= 2


def test_what_it_takes_to_learn_is_part_of_the_price() -> None:
    """Learning may take as long as asking: then it is asked as seldom as if asking took both."""
    asked: list[int] = []
    for asking, learning in ((1e-3, 0.0), (1e-3, 2e-2), (2.1e-2, 0.0)):
        echo, controller = controlled(asking)
        managed = controller.drafters[0]
        learn, clock = managed.learn, echo._clock

        def slowly(draft: Draft, step: Step, learn=learn, clock=clock, seconds=learning) -> None:
            clock.now += seconds
            learn(draft, step)

        managed.learn = slowly
        run(controller, 300)
        asked.append(echo.asked)
    assert asked[0] > 2 * asked[1]
    assert asked[1] == asked[2]


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
        free = FreeDrafting([managed], CostModel(COSTS), pieces.n_vocab)
        free.begin(sampler)
        proposed = free.poll(free.due(), [0], 4)
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
    free = FreeDrafting([managed], CostModel(COSTS), 3)
    free.begin(Sampler(SamplingSettings(0.0), constraint=constraint, prompt_tokens=1))
    assert not free.poll(free.due(), [0], 4)
    assert not managed.dropped


class Says(IdleDrafter):
    """The same tokens always."""

    name = "says"
    is_free = True

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self._tokens = tokens

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        return certain(self._tokens[:limit], self.name, 0.9)
