"""The drafter's tokens always read as the target's text, however that grows or is taken back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.drafters.cross_vocabulary.vocabularies import (
    Retokenizer,
    SharedVocabulary,
    Speller,
    TokenBytes,
    same_control,
)
from decoding.sampling.distribution import Distribution
from tests.fixtures.tokenizers import ToyTokenizer

BYTES = [bytes([byte]) for byte in range(256)]
OURS = [*BYTES, b" the", b"he", b" qu", b"ick", b"\n\n", b" \xf0\x9f", b"\x99\x82", b"", b""]
START, UNKNOWN = len(OURS) - 2, len(OURS) - 1
THEIRS = [*BYTES, b" quick", b"th", b"e ", b"e\n", "\U0001f642".encode(), b"\x82 t", b""]
OPENING, SAME = len(THEIRS) - 1, 7

tokens = st.sampled_from([*b" theq.\n\xf0", *range(256, len(OURS))])
histories = st.lists(
    st.tuples(st.floats(0, 1), st.booleans(), st.lists(tokens, max_size=150)), max_size=12
)


OUR_PIECES, THEIR_PIECES = (TokenBytes.of(ToyTokenizer(pieces)) for pieces in (OURS, THEIRS))


def make() -> tuple[Retokenizer, ToyTokenizer]:
    drafter = ToyTokenizer(THEIRS)
    speller = Speller(drafter, THEIR_PIECES)
    return Retokenizer(OUR_PIECES, speller, {START: [SAME]}, [OPENING]), drafter


def text_of(history: list[int]) -> bytes:
    return b"".join(bytes([SAME]) if token == START else OURS[token] for token in history)


@given(moves=histories)
@settings(max_examples=150)
def test_the_tokens_read_as_the_text_after_every_move(moves: list[tuple[float, bool, list[int]]]):
    retokenizer, _ = make()
    history: list[int] = []
    held: list[int] = [OPENING]
    for kept, starts_again, added in moves:
        if starts_again:
            history = history[: round(kept * len(history))] + added
            standing = retokenizer.begin(history)
            assert retokenizer.tokens[:standing] == held[:standing]
        else:
            history = history + added
        standing = retokenizer.follow(history)
        assert retokenizer.tokens[:standing] == held[:standing]
        assert retokenizer.followed == len(history)
        assert retokenizer.tokens[0] == OPENING
        assert b"".join(THEIRS[token] for token in retokenizer.tokens) == text_of(history)
        held = list(retokenizer.tokens)


def test_growing_by_one_token_tokenizes_the_end_alone():
    retokenizer, drafter = make()
    target = ToyTokenizer(OURS)
    text = target.encode("the quick brown fox jumps over the lazy dog. " * 100, special=False)
    retokenizer.follow(text[:-200])
    most = 0
    for end in range(len(text) - 199, len(text) + 1):
        drafter.encoded = 0
        retokenizer.follow(text[:end])
        most = max(most, drafter.encoded)
    assert most < 600
    whole, _ = make()
    whole.follow(text)
    assert retokenizer.tokens == whole.tokens


def test_a_text_without_words_gets_marks_all_the_same():
    retokenizer, drafter = make()
    history = [ord("x")] * 3000
    for end in range(1, len(history) + 1, 3):
        drafter.encoded = 0
        retokenizer.follow(history[:end])
        assert drafter.encoded < 5000


def test_what_was_taken_back_is_tokenized_from_the_mark_before():
    retokenizer, drafter = make()
    first = [START, *b"the quick brown fox"] * 50
    retokenizer.follow([*first, *b" runs"])
    drafter.encoded = 0
    retokenizer.begin([*first, *b" sits"])
    retokenizer.follow([*first, *b" sits"])
    assert drafter.encoded < 100
    assert b"".join(THEIRS[token] for token in retokenizer.tokens).endswith(b"fox sits")


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


WORDS = [b" the", b"the", b"he ", "é".encode(), " \U0001f642".encode(), b"\xf0\x9f", b"  "]


def speller_of(tokenizer: ToyTokenizer) -> tuple[Speller, TokenBytes]:
    pieces = TokenBytes.of(tokenizer)
    return Speller(tokenizer, pieces), pieces


@pytest.mark.parametrize("adds_space", [False, True])
@given(data=st.binary(max_size=40) | st.text(max_size=20).map(str.encode))
@settings(max_examples=200)
def test_what_is_spelled_reads_as_it_was(adds_space: bool, data: bytes):
    speller, pieces = speller_of(ToyTokenizer([*BYTES, *WORDS], adds_space=adds_space))
    assert pieces.joined(speller.spell(data)) == data


def test_the_tokenizers_own_tokens_are_kept():
    tokenizer = ToyTokenizer([*BYTES, b"a", b"ab"])
    speller, _ = speller_of(tokenizer)
    assert speller.spell(b"xab") == tokenizer.encode("xab", special=False)


def test_a_space_that_a_tokenizer_adds_is_taken_off_again():
    tokenizer = ToyTokenizer([*BYTES, b" the"], adds_space=True)
    speller, _ = speller_of(tokenizer)
    assert speller.spell(b" the") == [256]
    assert speller.spell(b"the") == [*b"the"]


def test_a_character_cut_off_is_spelled_by_what_is_there():
    speller, _ = speller_of(ToyTokenizer([*BYTES, b"\xf0\x9f"]))
    assert speller.spell(b"a\xf0\x9f\x99") == [ord("a"), 256, 0x99]


def test_bytes_that_no_token_has_are_left_out():
    speller, _ = speller_of(ToyTokenizer([b"a", b"b"]))
    assert speller.spell(b"a\xffb") == [0, 1]


def test_a_tokenizer_that_rewrites_characters_is_taken_at_its_word():
    class Lowercase(ToyTokenizer):
        def encode(self, text: str, *, special: bool) -> list[int]:
            return super().encode(text.lower(), special=special)

    speller, _ = speller_of(Lowercase([b"a", b"b"]))
    assert speller.spell(b"aB") == [0, 1]


def test_of_two_tokens_for_a_byte_the_ordinary_one_is_written():
    pieces = TokenBytes.of(ToyTokenizer([b"a", b"a", b"b"], names={0: b"<0x61>"}))
    assert pieces.tokens == {b"a": 1, b"b": 2}
    pieces = TokenBytes.of(ToyTokenizer([b"a", b"a"], names={1: b"<0x61>"}))
    assert pieces.tokens == {b"a": 0}
