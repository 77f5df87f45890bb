"""Log probabilities told of a reply: the model's own, at every token, however it was drafted."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from decoding.draft import Drafter
from decoding.drafters.draft_model import DraftModel
from decoding.drafters.lookup import PromptLookup
from decoding.events import Step, TokenLogprob
from decoding.generation import Limits, always, generate
from decoding.sampling.sampler import logprobs
from decoding.sampling.settings import SamplingSettings
from tests.fixtures.branching import MAKERS, PROMPT, Make
from tests.fixtures.enumeration import N_VOCAB

if TYPE_CHECKING:
    from tests.decoding.conftest import FakeContext

Open = Callable[..., "FakeContext"]
Table = Callable[..., NDArray[np.float32]]

WARPED = SamplingSettings(0.6, 2, 0.95, 0.02, 1.3, presence_penalty=0.5, logit_bias=((1, 2.0),))


def by_model(context: "FakeContext") -> Drafter:
    return DraftModel("model", context, n_vocab=N_VOCAB, max_draft=3)


def by_lookup(context: "FakeContext") -> Drafter:
    del context
    return PromptLookup(min_match=1)


DRAFTED: dict[str, Make] = {**MAKERS, "model": by_model, "lookup": by_lookup}


def own(row: NDArray[np.float32]) -> NDArray[np.float64]:
    """Log probabilities of a row."""
    return row - np.log(np.exp(row.astype(np.float64)).sum())


def reply_of(
    context: "FakeContext", drafter: Drafter | None, top_logprobs: int | None, end: int = -1
) -> list[Step]:
    limits = Limits(24, frozenset({end}))
    events = generate(
        context, PROMPT, WARPED, limits, drafters=always(drafter), top_logprobs=top_logprobs
    )
    return [event for event in events if isinstance(event, Step)]


def check(context: "FakeContext", steps: Sequence[Step]) -> None:
    text = list(PROMPT)
    for step in steps:
        assert len(step.logprobs) == len(step.tokens)
        for token, told in zip(step.tokens, step.logprobs, strict=True):
            row = own(context.row(text))
            assert told.token == token
            assert told.logprob == pytest.approx(row[token], abs=1e-9)
            order = np.argsort(-row)[:2].tolist()
            assert [one for one, _ in told.top] == order
            assert [logprob for _, logprob in told.top] == pytest.approx(row[order], abs=1e-9)
            text.append(token)


@pytest.mark.parametrize("name", DRAFTED)
def test_each_token_has_that_of_the_row_it_was_chosen_by(
    name: str, table: Table, fake_context: Open
) -> None:
    target = fake_context(table(3, N_VOCAB))
    drafter = DRAFTED[name](fake_context(table(3, N_VOCAB)))
    steps = reply_of(target, drafter, 2)
    assert sum(step.accepted for step in steps) > 2
    check(target, steps)


def test_a_plain_reply_has_them_too(table: Table, fake_context: Open) -> None:
    target = fake_context(table(3, N_VOCAB))
    check(target, reply_of(target, None, 2))


def test_none_are_told_of_what_came_after_the_end(table: Table, fake_context: Open) -> None:
    """A drafted end token is the last one, though the pass has more rows."""
    cut = 0
    for seed in range(8):
        target = fake_context(table(seed, N_VOCAB))
        steps = reply_of(target, by_model(fake_context(table(seed, N_VOCAB))), 2, end=2)
        check(target, steps)
        cut += steps[-1].accepted == len(steps[-1].tokens) > 0
    assert cut


def test_nothing_is_told_unless_it_is_asked_for(table: Table, fake_context: Open) -> None:
    target = fake_context(table(3, N_VOCAB))
    assert not any(step.logprobs for step in reply_of(target, None, None))
    zero = [told for step in reply_of(target, None, 0) for told in step.logprobs]
    assert len(zero) == 24
    assert not any(told.top for told in zero)


def test_the_likeliest_come_first_and_impossible_ones_not_at_all() -> None:
    rows = np.array([[0.0, 3.0, -np.inf, 3.0, 1.0]], dtype=np.float32)
    (told,) = logprobs(rows, (0,), (4,), 9)
    assert [token for token, _ in told.top] == [1, 3, 4, 0]
    assert np.exp([logprob for _, logprob in told.top]).sum() == pytest.approx(1.0)
    assert told == TokenLogprob(4, cast("float", told.top[2][1]), told.top)
