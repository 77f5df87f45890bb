"""How a model divides certain texts is remembered, by their beginnings."""

import pytest

from decoding.constraint import divisions as module
from decoding.constraint.divisions import Divisions, Seen

TEXTS = [b"n", b"name", b"a", b'{"', b"{", b" {"]
N, NAME, A, BRACE_QUOTE, BRACE, SPACE_BRACE = range(6)


def taught(text: bytes, *tokens: int) -> Divisions:
    divisions = Divisions(TEXTS)
    for token in tokens:
        divisions.learn(text, token)
    return divisions


def test_what_was_written_last_is_expected_again() -> None:
    assert taught(b"name_of", N).seen(b"name_of_it") == Seen(N, True)
    assert taught(b"name_of", N, N).seen(b"name_of") == Seen(N, True)
    assert taught(b"name_of", N, NAME).seen(b"name_of") == Seen(NAME, False)
    assert taught(b"name_of", NAME, N, N).seen(b"name_of") == Seen(N, False)


@pytest.mark.parametrize("text", [b"names_of", b"na", b'name": ', b"of_name", b""])
def test_a_word_is_known_as_a_whole_with_what_follows_it(text: bytes) -> None:
    assert taught(b"name_of", NAME).seen(text) is None


def test_signs_are_known_before_any_word_but_not_at_an_end() -> None:
    divisions = taught(b'{"name', BRACE)
    assert divisions.seen(b'{"of') == Seen(BRACE, True)
    assert divisions.seen(b'{"') is None
    assert divisions.seen(b' {"of') is None
    divisions.learn(b'{"of', BRACE_QUOTE)
    assert divisions.seen(b'{"of') == Seen(BRACE_QUOTE, True)
    assert divisions.seen(b'{"name') == Seen(BRACE, True)
    assert divisions.seen(b'{"a') == Seen(BRACE_QUOTE, False)


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_KEPT", 3)
    divisions = Divisions(TEXTS)
    for text in (b"a1", b"a2", b"a3", b"a1", b"a4"):
        divisions.learn(text, A)
    known = [text for text in (b"a1", b"a2", b"a3", b"a4") if divisions.seen(text)]
    assert known == [b"a1", b"a3", b"a4"]
