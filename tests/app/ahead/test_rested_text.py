"""Each word of a text that is typed rests for itself."""

import pytest

from app.ahead.reading_ahead import REST_SECONDS, RestedText


def test_what_is_certain_has_rested_at_once() -> None:
    text = RestedText()
    text.update([1, 2, 3], float("-inf"))
    assert text.length(0.0) == 3
    assert text.next_in(0.0) is None


def test_every_word_is_ready_a_moment_after_it_was_typed_without_any_pause() -> None:
    text = RestedText()
    step = REST_SECONDS / 3.5  # keys never rest as long
    for count in range(1, 20):
        text.update(list(range(count)), count * step)
        assert text.length(count * step) == max(count - 4, 0)
    assert text.next_in(19 * step) == pytest.approx(0.5 * step)
    assert text.length(19 * step + REST_SECONDS) == 19


def test_a_change_makes_only_what_follows_it_rest_again() -> None:
    text = RestedText()
    text.update([1, 2, 3, 4], 0.0)
    text.update([1, 2, 9, 9, 9], 10.0)
    assert text.length(10.0) == 2
    assert text.length(10.0 + REST_SECONDS) == 5
    text.update([1], 20.0)
    assert text.length(20.0) == 1
    assert text.next_in(20.0) is None
    text.update([], 21.0)
    assert text.length(30.0) == 0


def test_nothing_rests_before_anything_is_there() -> None:
    text = RestedText()
    assert text.length(5.0) == 0
    assert text.next_in(5.0) is None
