"""Reasoning is free, the answer after it is constrained, wherever in a draft it begins."""

import numpy as np
import pytest

from decoding.constraint.constraint import NOTHING_FORCED, AfterReasoning, Evidence, Reasoning
from decoding.constraint.grammar import NotAllowedError
from tests.fixtures.pieces import END, PADDING, Pieces, constraint_on

OPEN, A, B, AB, LESS, CLOSE, GREATER, BREAK, JOINED, PAD, STOP = range(11)
PIECES = Pieces([b"<t>", b"a", b"b", b"ab", b"</", b"</t>", b"t>", b"t>\n", b"t>a", PADDING, END])
FREE = {OPEN, A, B, AB, LESS, CLOSE, GREATER, BREAK, JOINED}


def reasoning(*, is_open: bool = True) -> AfterReasoning:
    marks = Reasoning(b"<t>", b"</t>", is_open)
    return AfterReasoning(constraint_on(PIECES, "ab?"), marks, PIECES.pieces, PIECES.end_tokens)


def allowed(constraint: AfterReasoning, *drafted: int) -> set[int] | None:
    mask = constraint.allowed(drafted)
    return None if mask is None else set(np.flatnonzero(mask).tolist())


def test_reasoning_is_free_but_cannot_end_the_reply() -> None:
    assert allowed(reasoning()) == FREE
    assert allowed(reasoning(), B, B, OPEN) == FREE
    assert allowed(reasoning(), B, STOP) == set()


def test_the_answer_begins_after_the_closing_text_in_mid_draft() -> None:
    for closing in ([CLOSE], [LESS, GREATER], [LESS, BREAK], [B, LESS, GREATER]):
        assert allowed(reasoning(), *closing) == {A, AB}
        assert allowed(reasoning(), *closing, A) == {B, STOP}
        assert allowed(reasoning(), *closing, B) == set()
        assert allowed(reasoning(), *closing, AB, STOP) is None


def test_no_answer_begins_within_the_token_that_closes() -> None:
    assert allowed(reasoning(), LESS) == FREE - {JOINED}
    assert allowed(reasoning(), LESS, JOINED) == set()
    assert allowed(reasoning(), B, JOINED) == FREE, "it closes nothing there"


def test_a_reply_may_open_the_reasoning_or_answer_at_once() -> None:
    assert allowed(reasoning(is_open=False)) == {OPEN, A, AB}
    assert allowed(reasoning(is_open=False), OPEN) == FREE
    assert allowed(reasoning(is_open=False), A) == {B, STOP}
    assert allowed(reasoning(is_open=False), B) == set()


def test_it_goes_on_from_what_was_accepted_alone() -> None:
    constraint = reasoning()
    assert allowed(constraint, CLOSE, A) == {B, STOP}
    constraint.accept([B, LESS])
    assert constraint.length == 2
    assert allowed(constraint) == FREE - {JOINED}
    assert allowed(constraint, BREAK) == {A, AB}
    constraint.accept([GREATER, A])
    assert allowed(constraint) == {B, STOP}
    assert allowed(constraint, B) == {STOP}
    constraint.accept([STOP])
    assert allowed(constraint) is None


def test_legal_tokens_are_counted_across_the_border() -> None:
    constraint = reasoning()
    assert constraint.count_allowed([], [B, CLOSE, A, B, B]) == 4
    assert constraint.count_allowed([B], [STOP, A]) == 0
    assert constraint.count_allowed([LESS], [JOINED]) == 0
    assert constraint.count_allowed([B, CLOSE], [B]) == 0
    assert constraint.count_allowed([B, CLOSE, A], [STOP]) == 1


def test_nothing_is_forced_while_it_reasons() -> None:
    assert reasoning().forced([], 8) == NOTHING_FORCED
    assert reasoning().forced([CLOSE, A, B], 8).tokens == (STOP,)


def test_the_grammar_tells_nothing_of_the_reasoning() -> None:
    """Its answer is certain but for its last letter."""
    assert list(reasoning().evidence([B], [B, CLOSE, A, B])) == [
        Evidence.FURTHER, Evidence.FURTHER, Evidence.GUESSED, Evidence.FIRST,
    ]  # fmt: skip
    assert list(reasoning().evidence([CLOSE, A], [B])) == [Evidence.FIRST]


def test_a_reply_that_ends_within_its_reasoning_is_an_error() -> None:
    with pytest.raises(NotAllowedError):
        reasoning().accept([B, STOP])
