"""How long a text must pause before it is read on as if it were sent."""

import pytest

from app.ahead.expected import (
    AFTER_SENTENCE_SECONDS,
    ELSEWHERE_SECONDS,
    ends_sentence,
    pause_before,
)
from app.ahead.reading_ahead import REST_SECONDS


@pytest.mark.parametrize(
    "text", ["Why?", "It is so. ", "He said: “Go!”", "(and so on…)", "为什么\uff1f", "x = f(y)."]
)
def test_the_end_of_a_sentence_is_known(text: str) -> None:
    assert ends_sentence(text)
    assert pause_before(text) == AFTER_SENTENCE_SECONDS < REST_SECONDS


@pytest.mark.parametrize("text", ["", " ", "Why", "Why? Be", "a, ", "f(x)", "1.5"])
def test_what_is_not_one_waits_longer(text: str) -> None:
    assert not ends_sentence(text)
    assert pause_before(text) == ELSEWHERE_SECONDS > REST_SECONDS
