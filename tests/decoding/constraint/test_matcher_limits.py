"""What a matcher looked at along drafts does not end a reply; only the text of it can."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from decoding.constraint import compiled_grammar
from decoding.constraint.constraint import NOTHING_FORCED
from decoding.constraint.grammar import ConstraintError
from decoding.constraint.matcher import AnswerT, MatcherConstraint, Walker
from tests.fixtures.pieces import END, Pieces, constraint_on

PIECES = Pieces([b"a", b"b", b"c", END])
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
    drafting, plain = (constraint_on(PIECES, MANY_STATES) for _ in range(2))
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
    constraint = constraint_on(PIECES, MANY_STATES)
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
    constraint = constraint_on(PIECES, "(ab)*c")
    forcing = constraint._forcing
    forcing.walker = Failing(forcing.walker._make)
    constraint.accept([0])
    assert constraint.forced((), 4).tokens == (1,)
    for token in (1, 0, 1, 2):
        constraint.accept([token])
        assert constraint.forced((), 4) == NOTHING_FORCED
    assert mask(constraint) == [False, False, False, True], "followed to its end"
