"""Where an engine replays recorded passes, few widths are kept, and nothing is slower."""

import statistics

import pytest

from decoding.estimation.cost import CostModel
from decoding.planning.kept_width import KeptWidth
from tests.fixtures.simulated_text import constant
from tests.fixtures.simulator import H100, Log, Machine, Recorded

REPLY = 160
DRAW = {"135M": 0.5, "8B": 0.12, "32B": 0.12}
"""What the 135M drafter takes for a token, in plain steps of each body."""


def replies(
    body: Recorded, right: float, seed: int, draw: float | None, count: int = 6
) -> tuple[Machine, Log, list[float]]:
    """Replies under the controller, and the speedup of each over plain decoding.

    After its prompt plain decoding begins with a change of width too.
    """
    text = constant(right, seed)
    machine = Machine(text, body.passes, draw_cost=draw, seed=seed, changes=body.changes)
    log, gained = Log(), list[float]()
    for _ in range(count):
        first = len(log.costs)
        machine.run(tokens=REPLY, log=log)
        plain = sum(log.tokens[first:]) + body.changes[1]
        gained.append(plain / sum(log.costs[first:]))
    return machine, log, gained


@pytest.mark.slow
@pytest.mark.parametrize("right", [0.9, 0.7, 0.5, 0.05])
@pytest.mark.parametrize("is_free", [True, False])
@pytest.mark.parametrize("name", H100)
def test_never_slower_and_near_the_best_width(name: str, is_free: bool, right: float) -> None:
    """First replies included; near the best width once the first ones have taught."""
    check(H100[name], right, None if is_free else DRAW[name], seeds=8)


@pytest.mark.parametrize(("name", "right", "draw"), [("8B", 0.9, None), ("32B", 0.7, 0.12)])
def test_it_is_so_in_short(name: str, right: float, draw: float | None) -> None:
    check(H100[name], right, draw, seeds=2)


def check(body: Recorded, right: float, draw: float | None, seeds: int) -> None:
    runs = [replies(body, right, seed, draw) for seed in range(seeds)]
    for of_reply in zip(*(gained for *_, gained in runs), strict=True):
        assert statistics.fmean(of_reply) >= 0.975
    assert statistics.fmean(gain for *_, gained in runs for gain in gained) >= 0.985
    best = max(
        statistics.fmean(one.of_width(width, log, draw or 0.0) for one, log, _ in runs)
        for width in body.changes
    )
    last = statistics.fmean(gain for *_, gained in runs for gain in gained[3:])
    if right >= 0.7 and body is not H100["135M"]:  # there a change costs four plain steps
        assert last >= 0.9 * best


def test_counting_steady_passes_alone_is_slower_than_plain() -> None:
    """The wrong variant, which the controller was: each draft as long as seems best."""
    body, right = H100["8B"], constant(0.3, 1)

    def gain(*, is_known: bool) -> float:
        machine = Machine(right, body.passes, seed=1, changes=body.changes if is_known else None)
        machine.changes = dict.fromkeys(range(1, 65), body.changes[1])
        log = machine.replies(1_500, REPLY)
        return sum(log.tokens) / sum(log.costs)

    assert gain(is_known=False) < 0.9
    assert gain(is_known=True) > 0.97


def test_a_width_is_left_once_another_has_missed_what_the_change_costs() -> None:
    costs = CostModel({1: 1.0, 4: 1.2, 8: 1.5}, changes={1: 1.0, 4: 1.0, 8: 1.0})
    width = KeptWidth(costs)
    assert width.choose([0.0], 1.0, 9.0) == 1
    assert width.ran(1) == 0.0, "after a prompt any width is a change"
    assert [width.choose([0.0, 0.9], 1.0, 9.0) for _ in range(3)] == [1, 1, 4]
    assert width.ran(4) == 1.0
    assert width.choose([0.0, 0.9], 1.0, 9.0) == 4
    assert width.ran(4) == 0.0
    assert width.choose([0.0, 0.0], 1.0, 0.5) == 1, "what may not be lost is not risked"
    assert width.is_refused


def test_a_pass_that_could_not_be_filled_up_counts_as_the_next_width() -> None:
    """At the end of a context, where a step may follow all the same."""
    width = KeptWidth(CostModel({1: 1.0, 4: 1.2}, changes={1: 1.0, 4: 1.0}))
    width.ran(1)
    assert width.ran(3) == 1.0
    assert width.rows == 4
    assert width.choose([0.0, 0.9], 1.0, 9.0) == 4


def test_no_step_between_others_tells_what_a_width_costs() -> None:
    costs = CostModel({1: 1.0, 4: 1.2}, changes={1: 1.0, 4: 1.0})
    for n, seconds in ((1, 2.0), (1, 2.0), (4, 2.0), (4, 2.0), (1, 2.0), (4, 2.0)):
        costs.observe(n, seconds)
    assert (costs.seconds(1), costs.seconds(4)) == (1.0, 1.2)
    for _ in range(40):
        costs.observe(4, 1.5)
    assert costs.seconds(4) == pytest.approx(1.5, rel=0.05)
