"""Figures of a reply from scripted events; None for what was not measured."""

import math
import random
from dataclasses import replace

import pytest

from decoding.events import Event, Finish, FinishReason, Prefill, Shape, Step
from decoding.telemetry import BatchMeans, Statistics


def means(durations: list[float]) -> BatchMeans:
    result = BatchMeans()
    for seconds in durations:
        result.add(seconds)
    return result


def test_a_short_series_has_no_error() -> None:
    assert means([0.1] * 3).error is None
    assert means([0.1] * 4).error == pytest.approx(0.0)
    assert BatchMeans().noise is None


@pytest.mark.parametrize("count", [5, 8, 63, 64, 100, 1000])
def test_every_duration_counts_once(count: int) -> None:
    series = means([0.01] * count)
    assert (series.count, series.total) == (count, pytest.approx(0.01 * count))
    assert series.error == pytest.approx(0.0, abs=1e-9)


def test_the_error_is_that_of_the_mean() -> None:
    chance = random.Random(1)
    series = [means([chance.gauss(1.0, 0.2) for _ in range(400)]) for _ in range(200)]
    claimed = sum(one.error or 0.0 for one in series) / len(series)
    assert claimed == pytest.approx(0.2 / math.sqrt(400), rel=0.1)


def test_noise_that_lasts_has_a_larger_error() -> None:
    quick = means([1.0, 2.0] * 64)
    slow = means([1.0] * 64 + [2.0] * 64)
    assert quick.error == pytest.approx(0.0)
    assert slow.error is not None
    assert slow.error > 0.1


def test_noise_is_the_error_over_one_second() -> None:
    series = means([0.5] * 16 + [1.5] * 48 + [0.5] * 8 + [1.0] * 16)
    assert series.noise is not None
    assert series.error is not None
    assert series.noise == pytest.approx(series.error * math.sqrt(series.total))


PREFILLS = [Prefill(8, 20, 5, 0.5), Prefill(20, 20, 5, 1.25)]


def step(
    tokens: int,
    drafter: str = "",
    drafted: int = 0,
    accepted: int = 0,
    *,
    draft: float = 0.0,
    verify: float = 0.0,
    at: float,
) -> Step:
    return Step(tuple(range(tokens)), drafter, drafted, accepted, draft, verify, draft + verify, at)


STEPS = [
    step(1, at=11.5),
    step(3, "lookup", 4, 2, draft=0.1, verify=0.5, at=12.5),
    step(1, draft=0.2, verify=0.25, at=13.0),
    step(4, "model", 3, 3, draft=0.4, verify=0.5, at=14.0),
    step(1, "lookup", 1, 0, draft=0.1, verify=0.5, at=15.5),
]


def statistics(*events: Event) -> Statistics:
    found = Statistics(started_at=10.0)
    for event in events:
        found.add(event)
    return found


@pytest.fixture
def whole() -> Statistics:
    return statistics(*PREFILLS, *STEPS, Finish(FinishReason.STOP))


def test_the_prompt_counts_as_its_last_progress_told(whole: Statistics) -> None:
    assert (whole.prompt_tokens, whole.cached_prompt_tokens) == (20, 5)
    assert whole.prefill_seconds == 1.25


def test_steps_and_tokens_are_added_up(whole: Statistics) -> None:
    assert (whole.steps, whole.completion_tokens) == (5, 10)
    assert (whole.drafted, whole.accepted) == (8, 5)
    assert whole.tokens_per_step == 10 / 5
    assert whole.acceptance == 5 / 8


def test_each_drafter_has_its_own_counts(whole: Statistics) -> None:
    lookup, model = whole.by_drafter["lookup"], whole.by_drafter["model"]
    assert whole.by_drafter.keys() == {"lookup", "model"}
    assert (lookup.steps, lookup.drafted, lookup.accepted) == (2, 5, 2)
    assert (model.steps, model.drafted, model.accepted) == (1, 3, 3)
    assert lookup.draft_seconds == pytest.approx(0.2)
    assert model.draft_seconds == pytest.approx(0.4)


def test_steps_that_drafted_are_counted_by_what_was_accepted(whole: Statistics) -> None:
    assert whole.accepted_lengths == [1, 0, 1, 1]
    assert sum(whole.accepted_lengths) == sum(whole.drafted_lengths[1:])


def test_steps_after_the_first_are_counted_by_shape() -> None:
    shapes = [Shape.NONE, Shape.NONE, Shape.LINE, Shape.TREE, Shape.LINE]
    found = statistics(
        *(replace(one, shape=shape) for one, shape in zip(STEPS, shapes, strict=True))
    )
    assert found.steps_by_shape == {
        Shape.NONE: 1, Shape.LINE: 2, Shape.PATHS: 0, Shape.TREE: 1,
    }  # fmt: skip
    assert sum(found.steps_by_shape.values()) == found.steps - 1


def test_window_tokens_alone_are_no_draft() -> None:
    alone = replace(step(1, "lookahead", verify=0.5, at=12.0), window_tokens=4)
    found = statistics(step(1, at=11.0), alone)
    assert (found.accepted_lengths, found.steps_by_shape[Shape.NONE]) == ([], 1)
    assert (found.by_drafter["lookahead"].steps, found.by_drafter["lookahead"].drafted) == (1, 0)


def test_acceptance_by_position_counts_what_was_drafted_there(whole: Statistics) -> None:
    assert whole.accepted_by_position == [2 / 3, 2 / 2, 1 / 2, 0 / 1]


def test_ttft_runs_from_the_request_to_the_first_token(whole: Statistics) -> None:
    assert whole.ttft_seconds == 1.5


def test_the_decode_rate_leaves_out_the_first_token_and_the_time_before_it(
    whole: Statistics,
) -> None:
    assert whole.decode_seconds == 4.0
    assert whole.decode_tokens_per_second == 9 / 4


def test_overhead_is_what_neither_drafting_nor_the_passes_took(whole: Statistics) -> None:
    assert whole.draft_seconds == pytest.approx(0.8)
    assert whole.verify_seconds == pytest.approx(1.75)
    assert whole.overhead_seconds == pytest.approx(4.0 - 0.8 - 1.75)


def test_before_any_event_nothing_is_known() -> None:
    empty = statistics()
    assert empty.prefill_seconds is None
    assert empty.acceptance is None
    assert empty.tokens_per_step is None
    assert empty.ttft_seconds is None
    assert empty.decode_seconds is None
    assert empty.decode_tokens_per_second is None
    assert empty.overhead_seconds is None
    assert empty.accepted_by_position == []
    assert empty.by_drafter == {}
    assert (empty.accepted_lengths, set(empty.steps_by_shape.values())) == ([], {0})


def test_a_reply_cancelled_in_its_prompt_has_no_rate() -> None:
    found = statistics(PREFILLS[0], Finish(FinishReason.CANCELLED))
    assert (found.prefill_seconds, found.completion_tokens) == (0.5, 0)
    assert (found.ttft_seconds, found.decode_tokens_per_second) == (None, None)


def test_one_token_has_a_time_and_no_rate() -> None:
    found = statistics(PREFILLS[1], step(1, at=11.5))
    assert (found.ttft_seconds, found.tokens_per_step) == (1.5, 1.0)
    assert (found.decode_tokens_per_second, found.acceptance) == (None, None)


def test_without_drafts_acceptance_was_not_measured() -> None:
    found = statistics(step(1, at=11.0), step(1, verify=0.5, at=12.0))
    assert (found.acceptance, found.by_drafter, found.accepted_by_position) == (None, {}, [])
    assert found.decode_tokens_per_second == 1.0


def test_drafts_never_accepted_have_acceptance_0() -> None:
    found = statistics(step(1, at=11.0), step(1, "lookup", 2, 0, at=12.0))
    assert (found.acceptance, found.accepted_by_position) == (0.0, [0.0, 0.0])
