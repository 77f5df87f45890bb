"""How often a free drafter is asked: always if that costs nothing, seldom if it gains nothing."""

import pytest

from decoding.planning.free_drafting import PollSchedule


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
