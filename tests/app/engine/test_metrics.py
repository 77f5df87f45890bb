"""Figures of a reply, and its speed against plain decoding: no gain or loss that noise explains."""

from contextlib import closing
from dataclasses import asdict, replace

import pytest

from app.engine.metrics import (
    PLAIN,
    Comparison,
    SessionSpeedup,
    Standing,
    compare,
    compare_replies,
    plain_rate,
    reply_metrics,
    wall,
)
from app.engine.report import reply_report
from app.loading.session_options import SessionOptions
from app.paths import Paths
from decoding.estimation.cost import CostModel, Measured
from decoding.events import Step
from decoding.sampling.distribution import SamplingSettings
from decoding.telemetry import Statistics
from tests.fixtures.metrics import LIVE
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.sessions import new_reply


@pytest.mark.parametrize(
    ("speedup", "error", "words"),
    [
        (1.38, 0.1, "1.4× plain ± 0.1"), (1.123, 0.031, "1.12× plain ± 0.03"),
        (1.04, 0.09, "even with plain ± 9 %"), (0.94, 0.09, "even with plain ± 9 %"),
        (1.0, 0.0, "even with plain ± 1 %"), (0.992, 0.002, "even with plain ± 1 %"),
        (0.92, 0.03, "▲ 8 % slower than plain ± 3 %"), (2.5, 0.001, "2.50× plain ± 0.01"),
    ],
)  # fmt: skip
def test_what_is_told_of_a_speed(speedup: float, error: float, words: str) -> None:
    comparison = compare(speedup, error, 64, is_drafted=True)
    assert comparison.words == comparison.panel_words == words


def test_a_slower_reply_tells_that_drafting_is_paused() -> None:
    slower = compare(0.92, 0.03, 64, is_drafted=True, is_paused=True)
    assert slower.words == "▲ 8 % slower than plain ± 3 % · drafting paused"
    assert "paused" not in compare(1.4, 0.1, 64, is_drafted=True, is_paused=True).words


def test_nothing_is_compared_where_nothing_can_be() -> None:
    assert compare(1.4, 0.1, 64, is_drafted=False) == PLAIN
    for unknown in (
        compare(1.4, 0.1, 63, is_drafted=True),
        compare(None, None, 64, is_drafted=True),
        compare(1.4, None, 64, is_drafted=True),
    ):
        assert unknown == Comparison(Standing.SHORT)
        assert (unknown.words, unknown.panel_words) == ("", "too short to compare")
    assert PLAIN.panel_words == ""


def test_two_replies_after_each_other_vary_by_their_spread() -> None:
    assert compare_replies(11.0, 10.0, 100, 0.05).standing is Standing.EVEN
    assert compare_replies(14.0, 10.0, 100, 0.05).words == "1.4× plain ± 0.2"
    assert compare_replies(14.0, 10.0, 63, 0.05).standing is Standing.SHORT


def test_small_gains_show_once_many_answers_are_pooled() -> None:
    answer = replace(LIVE, speedup=1.06, speedup_error=0.1)
    pooled = SessionSpeedup().with_answer(answer)
    assert pooled.comparison.standing is Standing.EVEN
    for _ in range(24):
        pooled = pooled.with_answer(answer)
    assert (pooled.answers, pooled.comparison.words) == (25, "1.06× plain ± 0.02")


def test_plain_answers_thin_the_gain_of_the_others() -> None:
    plain = replace(LIVE, speedup=1.0, speedup_error=None, drafted=0)
    pooled = SessionSpeedup().with_answer(plain)
    assert pooled.comparison == PLAIN
    pooled = pooled.with_answer(replace(LIVE, speedup=1.4, speedup_error=0.02))
    assert pooled.comparison.words == "1.20× plain ± 0.01"


def test_what_has_no_plain_rate_is_left_out() -> None:
    unknown = replace(LIVE, speedup=None, speedup_error=None)
    assert SessionSpeedup().with_answer(unknown) == SessionSpeedup()
    assert SessionSpeedup().comparison == PLAIN


COSTS = CostModel(Measured({1: 0.01, 2: 0.015}))
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
        assert plain.source == "100 plain steps of this answer"
        return plain.error or 0.0

    assert 0.0 < error(1) < error(10) < error(50) < 0.1


def test_a_noisy_reply_is_less_sure() -> None:
    steady = [*[(0, 0.01)] * 64, *[(3, 0.02)] * 20]
    noisy = [*[(0, 0.01)] * 32, *[(0, 0.03)] * 32, *[(3, 0.02)] * 20]
    errors = [plain_rate(COSTS, statistics(*steps), NOISE) for steps in (steady, noisy)]
    assert errors[0] is not None
    assert errors[1] is not None
    assert (errors[0].error or 0.0) < (errors[1].error or 0.0)


GIGABYTE = 10**9


@pytest.mark.parametrize(
    ("bandwidth", "streamed", "disk", "expected"),
    [
        (20e9, 0, None, 20.0), (None, 0, None, None), (20e9, GIGABYTE // 2, 1e9, 2.0),
        (20e9, GIGABYTE, 1e9, 1.0), (20e9, GIGABYTE // 100, 1e9, 20.0),  # so little: memory decides
        (20e9, GIGABYTE // 2, None, None),
    ],
)  # fmt: skip
def test_the_wall_is_what_memory_and_the_disk_give(
    bandwidth: float | None, streamed: int, disk: float | None, expected: float | None
) -> None:
    found = wall(GIGABYTE, bandwidth, streamed, disk)
    assert found == (None if expected is None else pytest.approx(expected))


SETTINGS = SamplingSettings(temperature=0.0)
WORDS = ["one ", "two ", "three "]


def test_a_snapshot_stays_as_it_was_while_the_reply_goes_on() -> None:
    open_session = opened(ScriptedModel(WORDS))
    options, paths = SessionOptions(draft="off"), Paths.of_this_user()
    with closing(open_session(options, paths, lambda _: None)) as session:
        reply = new_reply(SETTINGS, 100)
        stream = session.stream(session.template.raw("hi"), reply, lambda: False)
        snapshots = [(reply_metrics(session, reply), len(reply.token_ids)) for _ in stream]
        last = reply_metrics(session, reply)
        report = reply_report(session, reply)
    assert [metrics.completion_tokens for metrics, _ in snapshots] == [
        tokens for _, tokens in snapshots
    ]
    assert len({metrics.context_used for metrics, _ in snapshots}) > 1
    figures = asdict(last)
    assert last.completion_tokens == len(WORDS) + 1
    assert len(reply.provenance) == len(reply.token_ids)
    assert {name: figures[name] for name in report["stats"]} == report["stats"] | {
        "peak_memory_bytes": last.peak_memory_bytes
    }
