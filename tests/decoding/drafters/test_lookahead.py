"""lookahead: its window moves on with every pass, and n-grams of it are drafted as branches."""

import numpy as np
import pytest

from backends.base import UsageError
from decoding.drafters.lookahead import Lookahead, LookaheadShape, NgramPool, TokenTree
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler
from tests.fixtures.forms import parents_in

HISTORY = [5, 6, 7]


def begun(shape: LookaheadShape) -> Lookahead:
    drafter = Lookahead(shape)
    drafter.begin(HISTORY, Sampler(SamplingSettings(temperature=0.0)))
    return drafter


def test_without_an_n_gram_the_window_goes_along_alone():
    draft = begun(LookaheadShape(window=3, ngram=4, pool=2)).propose(HISTORY, 9)
    assert draft.drafted == 0
    assert draft.form.window_tokens == 8
    # Columns begin at the last token and at the nodes of the line 2, 5; each goes on by two.
    assert parents_in(draft) == (-1, 0, -1, 2, 3, 2, 5, 6)


def test_a_column_and_the_word_after_it_are_an_n_gram_of_the_pool():
    drafter = begun(LookaheadShape(window=1, ngram=3, pool=2))
    draft = drafter.propose(HISTORY, 9)
    (guess,) = draft.tokens
    assert draft.listener is not None
    draft.listener(np.array([20, 21]))
    found = drafter.propose([*HISTORY, 20, 7], 9)
    assert found.tokens[: found.drafted] == (guess, 21)
    assert parents_in(found)[: found.drafted] == (-1, 0)
    assert drafter.propose([*HISTORY, 20, 7], 1).drafted == 1, "no deeper than the limit"


def test_columns_keep_their_places_when_several_tokens_are_said():
    """Column 2 begins two places after the last token: it is column 0 two tokens later."""
    drafter = begun(LookaheadShape(window=3, ngram=2, pool=2))
    draft = drafter.propose(HISTORY, 9)
    assert parents_in(draft) == (-1, 0)
    assert draft.listener is not None
    draft.listener(np.array([20, 21, 22]))
    # Of the places 3, 4 and 5 the model said 20, 21 and 22; 3 and 4 are said now.
    after = drafter.propose([*HISTORY, 20, 40], 9)
    assert after.tokens[after.drafted] == 22


def test_the_pool_outlives_a_reply_and_the_window_does_not():
    drafter = begun(LookaheadShape(window=1, ngram=2, pool=1))
    draft = drafter.propose(HISTORY, 9)
    assert not draft.tokens, "one column of one token is the last token itself"
    drafter = begun(LookaheadShape(window=2, ngram=2, pool=1))
    draft = drafter.propose(HISTORY, 9)
    assert draft.listener is not None
    draft.listener(np.array([20, 21]))
    drafter.begin(HISTORY, Sampler(SamplingSettings()))
    found = drafter.propose(HISTORY, 9)
    assert found.tokens[: found.drafted] == (20,)


def test_a_pass_takes_no_more_tokens_than_its_shape_says():
    generator = np.random.default_rng(0)
    shape = LookaheadShape(window=4, ngram=3, pool=3)
    drafter, text, most = begun(shape), list(HISTORY), 0
    for _ in range(300):
        draft = drafter.propose(text, 9)
        most = max(most, len(draft))
        assert draft.listener is not None
        draft.listener(generator.integers(0, 5, 1 + len(draft)))
        text += generator.integers(0, 5, int(generator.integers(1, 4))).tolist()
    assert most <= shape.nodes
    assert most > shape.nodes - 3


def test_branches_share_the_tokens_they_begin_with():
    tree = TokenTree()
    for branch in ((1, 2, 3), (1, 2, 4), (2, 2)):
        tree.add(branch)
    assert tree.tokens == [1, 2, 3, 4, 2, 2]
    assert tree.parents == [-1, 0, 1, 1, -1, 4]


def test_a_pool_keeps_the_latest_of_each_token():
    pool = NgramPool(2)
    for continuation in ((1,), (2,), (1,), (3,)):
        pool.add(9, continuation)
    assert pool.after(9) == [(3,), (1,)]
    assert pool.after(8) == []


def test_settings_are_read_and_nonsense_is_refused():
    assert LookaheadShape.parse("") == LookaheadShape()
    assert LookaheadShape.parse("g=2, w=7,n=4") == LookaheadShape(7, 4, 2)
    for text in ("w", "w=0", "n=1", "g=0", "w=3,w=4", "x=3", "w=-1", "w=1e9"):
        with pytest.raises(UsageError):
            LookaheadShape.parse(text)
