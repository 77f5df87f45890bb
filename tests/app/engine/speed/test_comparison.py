"""Speed against plain decoding: nothing that noise explains is called a gain or a loss."""

from dataclasses import replace

import pytest

from app.engine.metrics import (
    PLAIN,
    Comparison,
    SessionSpeedup,
    Standing,
    compare,
    compare_replies,
)
from tests.fixtures.metrics import LIVE


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
