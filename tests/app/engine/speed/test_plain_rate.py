"""The plain rate of a reply, and the error of its speedup."""

import pytest

from app.engine.metrics import plain_rate
from decoding.estimation.cost import CostModel
from decoding.events import Step
from decoding.telemetry import Statistics

COSTS = CostModel({1: 0.01, 2: 0.015})
NOISE = 0.05


def statistics(*steps: tuple[int, float]) -> Statistics:
    """A reply of steps by drafted tokens, all accepted, and seconds."""
    result, now = Statistics(0.0), 1.0
    result.add(Step((1,), "", 0, 0, 0.0, 0.0, 0.0, now))
    for drafted, seconds in steps:
        now += seconds
        tokens = (1,) * (drafted + 1)
        result.add(Step(tokens, "lookup", drafted, drafted, 0.0, seconds, seconds, now))
    return result


def test_nothing_is_known_before_the_second_token() -> None:
    assert plain_rate(COSTS, statistics(), NOISE) is None


def test_a_reply_without_drafts_is_plain_itself() -> None:
    plain = plain_rate(COSTS, statistics(*[(0, 0.01)] * 20), NOISE)
    assert plain is not None
    assert (plain.tokens_per_second, plain.error) == (pytest.approx(100.0), None)


def test_few_steps_tell_nothing_and_more_are_compared_with_the_cost() -> None:
    assert plain_rate(COSTS, statistics(*[(3, 0.02)] * 10), NOISE) is None
    plain = plain_rate(COSTS, statistics(*[(3, 0.02)] * 12), NOISE)
    assert plain is not None
    assert plain.tokens_per_second == pytest.approx(100.0)
    assert plain.error is not None
    assert plain.error > 0.12


def test_the_error_grows_with_the_share_of_drafted_steps() -> None:
    def error(drafted: int) -> float:
        steps = [*[(0, 0.01)] * 100, *[(3, 0.02)] * drafted]
        plain = plain_rate(COSTS, statistics(*steps), NOISE)
        assert plain is not None
        assert plain.source == "100 plain steps of this reply"
        return plain.error or 0.0

    assert 0.0 < error(1) < error(10) < error(50) < 0.1


def test_a_noisy_reply_is_less_sure() -> None:
    steady = [*[(0, 0.01)] * 64, *[(3, 0.02)] * 20]
    noisy = [*[(0, 0.01)] * 32, *[(0, 0.03)] * 32, *[(3, 0.02)] * 20]
    errors = [plain_rate(COSTS, statistics(*steps), NOISE) for steps in (steady, noisy)]
    assert errors[0] is not None
    assert errors[1] is not None
    assert (errors[0].error or 0.0) < (errors[1].error or 0.0)
