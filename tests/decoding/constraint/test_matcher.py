"""A mask allows what the grammar allows, at any drafted place, and leaves no trace."""

import re
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest

from backends.base import ModelError, UsageError
from decoding.constraint import compiled_grammar
from decoding.constraint.constraint import NOTHING_FORCED
from decoding.constraint.divisions import Divisions
from decoding.constraint.grammar import ConstraintError, GrammarKind
from decoding.constraint.matcher import AnswerT, MatcherConstraint, Walker
from tests.fixtures.pieces import END, PADDING, Pieces, constraint_on

A, B, AB, ALSO_AB, C, PAD, STOP, LAST = range(8)
PIECES = Pieces([b"a", b"b", b"ab", b"ab", b"c", PADDING, END, END + b"2"])


def allowed(constraint: MatcherConstraint, *drafted: int) -> set[int] | None:
    mask = constraint.allowed(drafted)
    if mask is None:
        return None
    assert mask.shape == (PIECES.n_vocab,)
    return set(np.flatnonzero(mask).tolist())


def test_masks_have_every_token_of_a_text_and_no_padding() -> None:
    constraint = constraint_on(PIECES, "abc?")
    assert allowed(constraint) == {A, AB, ALSO_AB}
    assert allowed(constraint, A) == {B}


def test_every_end_token_is_allowed_where_the_grammar_may_end_and_nowhere_else() -> None:
    constraint = constraint_on(PIECES, "abc?")
    assert allowed(constraint, AB) == {C, STOP, LAST}
    assert allowed(constraint, AB, C) == {STOP, LAST}
    assert allowed(constraint, A, STOP) == set()
    assert allowed(constraint, AB, LAST) is None, "what follows the end is cut off"


def test_nothing_is_allowed_after_a_forbidden_draft() -> None:
    constraint = constraint_on(PIECES, "abc?")
    for drafted in ([B], [A, A], [A, PAD], [AB, C, C]):
        assert allowed(constraint, *drafted) == set()
    assert allowed(constraint, A, B) == {C, STOP, LAST}, "it goes on as before"


def test_a_mask_is_that_of_its_own_place_whichever_was_asked_for_before() -> None:
    """The library keeps its last mask, and would give it for a place as far along another draft."""
    text = 'start: "a" ("a" "a" "b" | "b" "a" "c")'
    pieces = Pieces([b"a", b"b", b"ab", b"ac", END])
    a, b, ab, ac = range(4)

    def told(constraint: MatcherConstraint, *drafted: int) -> list[int]:
        mask = constraint.allowed(drafted)
        assert mask is not None
        return np.flatnonzero(mask).tolist()

    constraint = constraint_on(pieces, text, GrammarKind.LARK)
    assert told(constraint, a, a) == [a, ab]
    assert told(constraint, a, b) == [a, ac]
    constraint = constraint_on(pieces, text, GrammarKind.LARK)
    assert told(constraint, a, a) == [a, ab]
    constraint.accept([a, b])
    assert told(constraint) == [a, ac], "accepted after another draft was asked about"


def test_only_accepted_tokens_advance_it() -> None:
    constraint = constraint_on(PIECES, "abc?")
    assert allowed(constraint, AB, C) == {STOP, LAST}
    assert allowed(constraint) == {A, AB, ALSO_AB}
    constraint.accept([A, B])
    assert constraint.length == 2
    assert allowed(constraint) == {C, STOP, LAST}
    constraint.accept([STOP])
    assert allowed(constraint) is None


def test_tokens_that_may_follow_are_counted() -> None:
    constraint = constraint_on(PIECES, "abc?")
    assert constraint.count_allowed([], [A, B, C, C]) == 3
    assert constraint.count_allowed([A], [B, STOP, C]) == 3, "what follows the end is cut off"
    assert constraint.count_allowed([A], [STOP]) == 0
    assert constraint.count_allowed([B], [A]) == 0


def test_a_text_without_choice_is_forced_in_the_tokenizers_own_division() -> None:
    constraint = constraint_on(PIECES, "c(ab)?cab")
    assert constraint.forced([], 8).tokens == (C,)
    assert constraint.forced([C, C], 8).tokens == (AB, STOP), "also the end of the reply"
    assert constraint.forced([C, C, A], 8).tokens[:1] == (B,), "also within another division"
    assert constraint.forced([C, AB], 1).tokens == (C,), "no longer than was asked for"
    assert constraint.forced([B], 8) == NOTHING_FORCED
    assert constraint.forced([C, C, AB, STOP], 8) == NOTHING_FORCED
    assert allowed(constraint, C, C) == {A, AB, ALSO_AB}, "a division is a guess, not a rule"


def test_a_token_that_may_not_follow_ends_the_reply() -> None:
    with pytest.raises(ModelError, match="grammar allows"):
        constraint_on(PIECES, "abc?").accept([B])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (GrammarKind.REGEX, "c"),
        (GrammarKind.GBNF, "root ::= root"),
        (GrammarKind.JSON_SCHEMA, '{"type": "integer"}'),
    ],
)
def test_a_grammar_that_no_text_of_the_vocabulary_matches_is_refused(
    kind: GrammarKind, text: str
) -> None:
    with pytest.raises(UsageError, match="no text"):
        constraint_on(Pieces([b'"', b"a", END]), text, kind)


@pytest.mark.parametrize("seed", range(4))
def test_wherever_it_was_it_says_what_a_new_one_says(seed: int) -> None:
    """Random walks: asked about drafts in any order, and advanced, it equals one that was not."""
    random, divisions = np.random.default_rng(seed), Divisions(PIECES.pieces)
    make = partial(constraint_on, PIECES, "(ab|c(a|b)c|bbc)*", divisions=divisions)
    used, said = make(), list[int]()
    for _ in range(12):
        for _ in range(4):
            drafted = random.integers(0, PIECES.n_vocab, random.integers(0, 5)).tolist()
            new = make()
            new.accept(said)
            assert allowed(used, *drafted) == allowed(new, *drafted)
            assert used.forced(drafted, 9) == new.forced(drafted, 9)
        following = sorted(allowed(used) or set())
        following = [token for token in following if token not in PIECES.end_tokens]
        said.append(int(random.choice(following)))
        used.accept(said[-1:])
    viable = re.compile("(ab|c(a|b)c|bbc)*(a|c|c(a|b)|b|bb)?")
    assert viable.fullmatch(PIECES.text(said).decode())


FEW_PIECES = Pieces([b"a", b"b", b"c", END])
MANY_STATES = "(a|b)*a(a|b){6}c"
"""A language of which each text needs states of its own, up to 128."""


def mask(constraint: MatcherConstraint, *drafted: int) -> list[bool] | None:
    allowed = constraint.allowed(drafted)
    return None if allowed is None else allowed.tolist()


def test_rejected_drafts_do_not_use_up_what_a_reply_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled_grammar, "_MOST_STATES", 100)
    random = np.random.default_rng(0)
    drafting, plain = (constraint_on(FEW_PIECES, MANY_STATES) for _ in range(2))
    for said in random.integers(0, 2, 40).tolist():
        for _ in range(3):
            drafted = random.integers(0, 2, 6).tolist()
            assert drafting.count_allowed((), drafted) == 6
            drafting.allowed(drafted)
        assert mask(drafting) == mask(plain)
        drafting.accept([said])
        plain.accept([said])
    assert drafting.length == 40


def test_a_text_that_takes_too_much_ends_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_grammar, "_MOST_STATES", 20)
    constraint = constraint_on(FEW_PIECES, MANY_STATES)
    with pytest.raises(ConstraintError, match="too many states"):
        follow(constraint, [0, 1] * 20)
    assert constraint.length > 0, "not at once"


def follow(constraint: MatcherConstraint, tokens: Sequence[int]) -> None:
    for token in tokens:
        constraint.allowed(())
        constraint.accept([token])


class Failing(Walker):
    """It can no more tell what is forced once two tokens were accepted."""

    def ask(self, question: Callable[[], AnswerT]) -> AnswerT:
        if len(self._accepted) >= 2:
            raise ConstraintError("too many states")
        return super().ask(question)


def test_where_it_cannot_be_told_what_is_forced_nothing_is() -> None:
    """The reply goes on by the other form of the grammar."""
    constraint = constraint_on(FEW_PIECES, "(ab)*c")
    forcing = constraint._forcing
    forcing.walker = Failing(forcing.walker._make)
    constraint.accept([0])
    assert constraint.forced((), 4).tokens == (1,)
    for token in (1, 0, 1, 2):
        constraint.accept([token])
        assert constraint.forced((), 4) == NOTHING_FORCED
    assert mask(constraint) == [False, False, False, True], "followed to its end"
