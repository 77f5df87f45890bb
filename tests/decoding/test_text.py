"""Text from tokens: whole characters, invalid bytes, and stop texts wherever they are cut."""

import codecs
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.text import TextStream, spelling
from tests.fixtures.tokenizers import BOS, END, START, ByteTokenizer

if TYPE_CHECKING:
    from backends.base import Tokenizer

common = settings(max_examples=200)
SMILE = "\N{GRINNING FACE}"
CHARACTERS = st.sampled_from([SMILE.encode(), "日".encode(), b"a", b"\n"])
ANY_BYTES = st.lists(CHARACTERS | st.binary(max_size=3), max_size=6).map(b"".join)


class Pieces:
    """The part of a tokenizer that matters here: token i is the i-th piece."""

    def __init__(self, pieces: Sequence[bytes], *, end: int | None = None) -> None:
        self._pieces = pieces
        self.n_vocab = len(pieces)
        self.end_tokens = frozenset() if end is None else frozenset({end})

    def piece(self, token: int) -> bytes:
        return self._pieces[token]


def text_stream(
    pieces: Sequence[bytes], stops: tuple[str, ...] = (), calls: tuple[str, ...] = ()
) -> TextStream:
    return TextStream(cast("Tokenizer", Pieces(pieces)), stops, calls=calls)


def fed(
    pieces: Sequence[bytes], *stops: str, calls: tuple[str, ...] = ()
) -> tuple[list[str], str, bool]:
    """What each piece released, what the end did, and whether a stop text came."""
    stream = text_stream(pieces, stops, calls)
    released = [stream.feed(token) for token in range(len(pieces))]
    rest = stream.finish()
    return released, rest, stream.stopped


def spelt(tokenizer: "Tokenizer", tokens: Sequence[int], begun: Sequence[int] = ()) -> str:
    """The text of a reply of these tokens, after those that it continues."""
    stream = TextStream(tokenizer, begun=begun)
    return "".join([*map(stream.feed, tokens), stream.finish()])


def cut(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    borders = [0, *sorted(min(at, len(data)) for at in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(borders)]


def test_a_character_waits_until_it_is_whole() -> None:
    data = SMILE.encode()
    assert fed([data[:1], data[1:3], data[3:]]) == (["", "", SMILE], "", False)


def test_decoded_characters_count_those_held_back() -> None:
    stream = text_stream([b"a", SMILE.encode()[:2], SMILE.encode()[2:], b"\nUs"], ("\nUser:",))
    counts = [(stream.feed(token), stream.ends[-1]) for token in range(4)]
    assert counts == [("a", 1), ("", 1), (SMILE, 2), ("", 5)]


def test_invalid_bytes_become_replacement_characters() -> None:
    assert fed([b"a\xffb", b"\x80"]) == (["a\ufffdb", "\ufffd"], "", False)


def test_a_character_cut_off_at_the_end_is_left_off() -> None:
    assert fed([b"ok", SMILE.encode()[:2]]) == (["ok", ""], "", False)


def test_a_character_broken_off_in_the_middle_does_not_swallow_the_next() -> None:
    assert fed([SMILE.encode()[:2], b"x"]) == (["", "\ufffdx"], "", False)


def test_control_tokens_add_nothing() -> None:
    assert fed([b"a", b"", b"b"]) == (["a", "", "b"], "", False)


@common
@given(st.binary(max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_cutting_bytes_anywhere_gives_the_same_text(data: bytes, cuts: list[int]) -> None:
    released, rest, stopped = fed(cut(data, cuts))
    whole = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)
    assert "".join(released) + rest == whole
    assert not stopped


@pytest.mark.slow
@common
@given(ANY_BYTES)
def test_an_answer_that_is_cut_anywhere_and_continued_is_the_whole(data: bytes) -> None:
    """In emoji, in bytes that are no text, and again in what was continued."""
    tokenizer = cast("Tokenizer", Pieces([bytes([byte]) for byte in data]))
    tokens = range(len(data))
    whole = spelt(tokenizer, tokens)
    for end in tokens:
        text = spelt(tokenizer, tokens[:end])
        known = spelling(tokenizer, tokens[: end + 1], text)
        assert [*known] in ([*tokens[:end]], [*tokens[: end + 1]])
        assert text + spelt(tokenizer, tokens[len(known) :], begun=known) == whole
        assert "\ufffd" not in text or "\ufffd" in whole


def test_tokens_are_continued_only_as_far_as_they_spell_the_text() -> None:
    pieces = [b"a", b"b", SMILE.encode()[:2], b"", SMILE.encode()[2:], b"!"]
    tokenizer = cast("Tokenizer", Pieces(pieces, end=3))
    assert spelling(tokenizer, [0, 1, 2, 3], "ab") == [0, 1, 2]
    assert spelling(tokenizer, [0, 1, 2, 4, 5], "ab") == [0, 1, 2]
    assert spelling(tokenizer, [0, 1, 2, 4, 5], f"ab{SMILE}") == [0, 1, 2, 4]
    assert spelling(tokenizer, [0, 1, 5], "ab") == [0, 1]
    for tokens in ([1, 0], [0, 5], [0], [0, 9], []):
        assert not spelling(tokenizer, tokens, "ab")


def test_what_only_looked_like_a_stop_text_is_released() -> None:
    assert fed([b"a\nUs", b"ual"], "\nUser:") == (["a", "\nUsual"], "", False)


def test_what_was_held_back_is_released_at_the_end() -> None:
    assert fed([b"a\nUse"], "\nUser:") == (["a"], "\nUse", False)


def test_a_character_cut_off_behind_held_text_is_left_off_too() -> None:
    assert fed([b"a\nUs\xe2\x82"], "\nUser:") == (["a"], "\nUs", False)


def test_finish_gives_its_text_once() -> None:
    stream = text_stream([b"\nUs"], ("\nUser:",))
    assert stream.feed(0) == ""
    assert (stream.finish(), stream.finish()) == ("\nUs", "")


def test_a_stop_text_with_a_character_split_across_tokens_is_found() -> None:
    data = SMILE.encode()
    assert fed([b"a" + data[:2], data[2:] + b"b"], SMILE) == (["a", ""], "", True)


@common
@given(
    st.text(alphabet="ab\n", max_size=30),
    st.lists(st.integers(0, 30), max_size=8),
    st.sampled_from([("ab",), ("aab",), ("abab", "\na"), ("\n\n",), ("a\nb", "bb")]),
)
def test_cutting_text_anywhere_ends_it_at_the_same_place(
    text: str, cuts: list[int], stops: tuple[str, ...]
) -> None:
    found = [at for at in map(text.find, stops) if at >= 0]
    released, rest, stopped = fed(cut(text.encode(), cuts), *stops)
    assert "".join(released) + rest == (text[: min(found)] if found else text)
    assert stopped == bool(found)


@common
@given(
    st.lists(st.sampled_from(["<call>", "<call=", "}", "<c", "a", ">"]), max_size=12).map("".join),
    st.lists(st.integers(0, 30), max_size=8),
    st.sampled_from(["}", "a>", "l", "<call>", "=a}", "<"]),
)
def test_behind_what_opens_a_call_no_stop_text_counts(
    text: str, cuts: list[int], stop: str
) -> None:
    calls = ("<call>", "<call=")
    ends = [at + 6 for at in map(text.find, calls) if at >= 0]
    end = text.find(stop) + len(stop)
    is_stopped = stop in text and not any(call <= end for call in ends)
    released, rest, stopped = fed(cut(text.encode(), cuts), stop, calls=calls)
    assert "".join(released) + rest == (text[: text.find(stop)] if is_stopped else text)
    assert stopped == is_stopped


@pytest.mark.parametrize("stops", [(), ("END",)])
def test_only_what_may_begin_a_stop_text_waits(stops: tuple[str, ...]) -> None:
    released, rest, _ = fed([b"word E", b"!", b" END"[:3]], *stops)
    held = ["word ", "E!", " "] if stops else ["word E", "!", " EN"]
    assert (released, rest) == (held, "EN" if stops else "")


@pytest.mark.parametrize(("shown", "text"), [(False, "aéb"), (True, f"{START}aé{BOS}b")])
def test_control_texts_are_shown_on_request_and_the_end_never(shown: bool, text: str) -> None:
    tokenizer = ByteTokenizer(None)
    stream = TextStream(tokenizer, shows_control=shown)
    tokens = tokenizer.encode(f"{START}aé{BOS}b{END}", special=True)
    assert "".join([*map(stream.feed, tokens), stream.finish()]) == text


def test_control_texts_that_are_shown_can_be_a_stop_text() -> None:
    tokenizer = ByteTokenizer(None)
    stream = TextStream(tokenizer, (f"a{START}",), shows_control=True)
    tokens = tokenizer.encode(f"xa{START}b", special=True)
    assert "".join(map(stream.feed, tokens)) == "x"
    assert stream.stopped


@pytest.mark.parametrize(
    ("pieces", "stops", "told"),
    [
        ([b"one two"], ("two", "one"), "one"),  # the first in the text, not of those given
        ([b"one t", b"wo"], ("two", "three"), "two"),
        ([b"abc"], ("ab", "abc"), "ab"),  # at one place the first given
        ([b"abc"], ("abc", "ab"), "abc"),
        ([b"one"], ("two",), ""),
    ],
)
def test_the_stop_text_that_ended_it_is_told(
    pieces: Sequence[bytes], stops: tuple[str, ...], told: str
) -> None:
    stream = text_stream(pieces, stops)
    for token in range(len(pieces)):
        stream.feed(token)
    stream.finish()
    assert stream.stop_text == told
