"""Any bytes are spelled exactly, whatever habits the tokenizer has."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.drafters.cross_vocabulary.vocabularies import Speller, TokenBytes
from tests.fixtures.tokenizers import ToyTokenizer

BYTES = [bytes([byte]) for byte in range(256)]
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
