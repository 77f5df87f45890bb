"""Which tokens count as the same, and what is left of a distribution over them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.drafters.cross_vocabulary.vocabularies import (
    SharedVocabulary,
    TokenBytes,
    same_control,
)
from decoding.sampling.distribution import Distribution
from tests.fixtures.tokenizers import ToyTokenizer


def shared_by(target: ToyTokenizer, drafter: ToyTokenizer) -> SharedVocabulary:
    return SharedVocabulary.of(target, TokenBytes.of(target), drafter, TokenBytes.of(drafter))


def test_tokens_of_equal_bytes_are_matched_whatever_their_numbers():
    shared = shared_by(ToyTokenizer([b"a", b" b", b"c"]), ToyTokenizer([b"d", b"c", b" b", b"b"]))
    assert shared.to_target.tolist() == [-1, 2, 1, -1]
    assert shared.to_drafter.tolist() == [-1, 2, 1]
    assert shared.share == 0.5
    assert shared.share_of([0, 1, 1, 2]) == 0.75


def test_control_tokens_are_not_matched_even_by_name():
    names = {1: b"<think>"}
    target, drafter = ToyTokenizer([b"a", b""], names=names), ToyTokenizer([b"a", b""], names=names)
    assert shared_by(target, drafter).to_target.tolist() == [0, -1]
    same = same_control(target, TokenBytes.of(target), drafter, TokenBytes.of(drafter))
    assert same == {1: [1]}


def test_tokens_that_end_a_reply_are_matched_by_name_first():
    target = ToyTokenizer([b"a", b"", b""], eos=1, names={1: b"</s>", 2: b"<end>"})
    target.end_tokens = frozenset({1, 2})
    drafter = ToyTokenizer([b"", b"", b"a"], eos=0, names={0: b"<end>", 1: b"<eot>"})
    drafter.end_tokens = frozenset({0, 1})
    assert shared_by(target, drafter).to_target.tolist() == [2, -1, 0]


def test_the_ends_of_a_text_are_matched_whatever_their_names():
    target = ToyTokenizer([b"a", b""], eos=1, names={1: b"</s>"})
    drafter = ToyTokenizer([b"", b"a"], eos=0, names={0: b"<|endoftext|>"})
    assert shared_by(target, drafter).to_target.tolist() == [1, 0]


@pytest.mark.parametrize("size", [40, 3000])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_the_restriction_is_the_condition_of_being_shared(size: int, seed: int):
    random = np.random.default_rng(seed)
    theirs = [b"%d" % number for number in random.permutation(size)]
    ours = [b"%d" % number for number in random.permutation(size + size // 2)[:size]]
    shared = shared_by(ToyTokenizer(ours), ToyTokenizer(theirs))
    q_draft = Distribution(np.arange(size), random.dirichlet(np.full(size, 0.3)))
    mass, q_shared = shared.restricted(q_draft)
    numbers = {piece: token for token, piece in enumerate(ours)}
    expected = {
        numbers[piece]: q_draft.of(token) for token, piece in enumerate(theirs) if piece in numbers
    }
    assert mass == pytest.approx(sum(expected.values()))
    assert q_shared is not None
    assert (np.diff(q_shared.ids) > 0).all()
    assert q_shared.probabilities.sum() == pytest.approx(1.0)
    for token, probability in expected.items():
        assert q_shared.of(token) == pytest.approx(probability / mass, abs=1e-12)


def test_nothing_is_left_where_no_shared_token_is_likely():
    shared = shared_by(ToyTokenizer([b"a"]), ToyTokenizer([b"a", b"b"]))
    assert shared.restricted(Distribution(np.array([1]), np.ones(1))) == (0.0, None)
