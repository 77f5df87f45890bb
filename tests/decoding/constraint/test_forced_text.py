"""A certain text is drafted as the model divided it before; what it did is learned on the way."""

from collections.abc import Sequence

import pytest

from decoding.constraint import divisions as module
from decoding.constraint.constraint import Evidence
from decoding.constraint.divisions import Divisions, Seen
from decoding.constraint.matcher import MatcherConstraint
from tests.fixtures.pieces import END, Pieces, constraint_on

TEXTS = [b"n", b"name", b"a", b'{"', b"{", b" {"]
N, NAME, LETTER, BRACE_QUOTE, BRACE, SPACE_BRACE = range(6)


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
        divisions.learn(text, LETTER)
    known = [text for text in (b"a1", b"a2", b"a3", b"a4") if divisions.seen(text)]
    assert known == [b"a1", b"a3", b"a4"]


A, B, AB, C, COMMA, COMMA_A, STOP = range(7)
PIECES = Pieces([b"a", b"b", b"ab", b"c", b",", b",a", END])
KNOWN, LIKELY, GUESSED, DIFFERENT = (
    Evidence.KNOWN, Evidence.LIKELY, Evidence.GUESSED, Evidence.DIFFERENT,
)  # fmt: skip
FIRST, SECOND, FURTHER = Evidence.FIRST, Evidence.SECOND, Evidence.FURTHER


def follow(constraint: MatcherConstraint, tokens: Sequence[int]) -> MatcherConstraint:
    """Advance as a reply does whose drafter asks before each step, of two tokens where it can."""
    for start in range(0, len(tokens), 2):
        constraint.forced((), 1)
        constraint.accept(tokens[start : start + 2])
    return constraint


def test_it_is_guessed_until_it_was_seen() -> None:
    """But for signs that the tokenizer divides off whatever follows."""
    constraint = constraint_on(PIECES, "(ab,ab,c|ab,ab,b)*")
    assert constraint.forced([A], 3) == ((B, COMMA_A, B), (GUESSED, GUESSED, LIKELY))
    follow(constraint, [A, B, COMMA, AB, COMMA, B])
    assert constraint.forced([A], 4) == ((B, COMMA, AB, COMMA), (KNOWN,) * 4)


WORDS = "cab,ab,ab,(c|b)"
"""All of it is certain but the last letter."""


@pytest.mark.parametrize("said", [[C, A, B, COMMA], [C, AB, COMMA]])
def test_a_division_is_the_models_own_in_the_same_reply_and_the_next(said: list[int]) -> None:
    divisions = Divisions(PIECES.pieces)
    constraint = follow(constraint_on(PIECES, WORDS, divisions=divisions), said)
    own = said[1:]
    known = constraint.forced((), 9)
    assert known.tokens[: len(own)] == tuple(own)
    assert set(known.evidence[: len(own)]) == {KNOWN}
    following = constraint_on(PIECES, WORDS, divisions=divisions).forced((), 9)
    assert following.tokens[: len(said)] == tuple(said)
    assert constraint_on(PIECES, WORDS).forced((), 2).tokens == (C, AB)


def test_where_nobody_asks_nothing_is_learned() -> None:
    divisions = Divisions(PIECES.pieces)
    constraint_on(PIECES, WORDS, divisions=divisions).accept([C, A, B, COMMA])
    assert constraint_on(PIECES, WORDS, divisions=divisions).forced((), 2).tokens == (C, AB)


def test_a_token_that_reaches_beyond_a_certain_text_teaches_nothing() -> None:
    constraint = constraint_on(PIECES, "b,(a|c),(a|c)")
    follow(constraint, [B, COMMA_A])
    assert constraint.forced((), 9) == ((COMMA,), (GUESSED,))


def test_what_the_grammar_tells_of_a_line() -> None:
    constraint = constraint_on(PIECES, "cab,[ab]*,cab,c")
    line = [C, A, B, COMMA, A, B, A, COMMA, C]
    assert list(constraint.evidence([], line)) == [
        GUESSED, GUESSED, GUESSED, GUESSED, FIRST, SECOND, FURTHER, FURTHER, GUESSED,
    ]  # fmt: skip
    assert list(constraint.evidence(line[:5], line[5:7])) == [SECOND, FURTHER]
    follow(constraint, line[:5])
    assert list(constraint.evidence([], [B, A])) == [SECOND, FURTHER]
    assert list(constraint.evidence([], [COMMA, C, A, B])) == [SECOND, KNOWN, KNOWN, KNOWN]
    assert list(constraint.evidence([], [COMMA, C, AB])) == [SECOND, KNOWN, DIFFERENT]


def test_of_the_end_and_what_follows_it_nothing_is_told() -> None:
    constraint = constraint_on(PIECES, "ca?")
    assert list(constraint.evidence([], [C, STOP, A])) == [GUESSED, FURTHER, FURTHER]
    assert list(constraint.evidence([C, STOP], [A])) == [FURTHER]
