"""How a constrained reply begins and ends."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.constraint.grammar import NotAllowedError
from decoding.events import Finish, FinishReason, Step
from decoding.generation import Limits, generate
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.pieces import END, Pieces, constraint_on

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

Open = Callable[..., "FakeContext"]

A, B, STOP = range(3)
PIECES = Pieces([b"a", b"b", END])
GREEDY = SamplingSettings(0.0)


def always_says(scores: tuple[float, ...]) -> NDArray[np.float32]:
    """A table of rows that are all the same."""
    return np.broadcast_to(np.array(scores, dtype=np.float32), (4, 3, 3)).copy()


@pytest.mark.parametrize("scores", [(-np.inf, 1.0, 0.0), (-np.inf, 0.0, 1.0)])
def test_a_last_token_that_is_not_allowed_is_an_error(
    fake_context: Open, scores: tuple[float, ...]
) -> None:
    """Of a model that cannot say what may follow: at the length limit, and at its own end."""
    context, limits = fake_context(always_says(scores)), Limits(1, PIECES.end_tokens)
    events = generate(context, [B], GREEDY, limits, constraint=constraint_on(PIECES, "ab"))
    with pytest.raises(NotAllowedError):
        list(events)


def test_where_all_that_may_follow_is_banned_nothing_is(fake_context: Open) -> None:
    settings = SamplingSettings(0.0, logit_bias=((A, -100.0),))
    context, limits = fake_context(always_says((0.0, 1.0, 2.0))), Limits(9, PIECES.end_tokens)
    events = list(generate(context, [B], settings, limits, constraint=constraint_on(PIECES, "aa")))
    said = [token for event in events if isinstance(event, Step) for token in event.tokens]
    assert said == [A, A, STOP]
    assert events[-1] == Finish(FinishReason.STOP)


def test_the_begun_part_belongs_to_the_reply_with_a_grammar_and_without(fake_context: Open) -> None:
    """Penalties count it: what was said already is not said again."""
    settings = SamplingSettings(0.0, presence_penalty=1.0)
    for grammar in ("[ab]*", None):
        constraint = constraint_on(PIECES, grammar) if grammar else None
        if constraint is not None:
            constraint.accept([A])
        said: list[int] = []
        for event in generate(
            fake_context(always_says((0.5, 0.0, -9.0))),
            [B, B, A],
            settings,
            Limits(2, PIECES.end_tokens),
            constraint=constraint,
            begun=1,
        ):
            said += event.tokens if isinstance(event, Step) else ()
        assert said == [B, A], grammar
