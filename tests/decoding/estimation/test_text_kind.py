"""The kind of text at the end of a reply, however it is cut into tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.estimation.acceptance import TextKind, TextKindReader

CASES = {
    "": TextKind.PROSE,
    "Once upon a time": TextKind.PROSE,
    "Here:\n- milk": TextKind.LIST,
    "Here:\n- milk\n": TextKind.LIST,
    "Here:\n- milk\n\nThat is all": TextKind.PROSE,
    "1. first\n2) second": TextKind.LIST,
    "  * nested": TextKind.LIST,
    "2024 was a year": TextKind.PROSE,
    "• dot": TextKind.LIST,
    "Run:\n```python\nx = [1, 2]\n- 3": TextKind.CODE,
    "Run:\n```": TextKind.CODE,
    "Run:\n```\nx\n```\nDone": TextKind.PROSE,
    "~~~\ncode": TextKind.CODE,
    "He said: “I will": TextKind.QUOTE,
    "He said: “I will” and": TextKind.PROSE,
    'He said "never': TextKind.QUOTE,
    'He said "never" and': TextKind.PROSE,
    'An inch is 1" long.\n\nNext paragraph': TextKind.PROSE,
    "> as it was": TextKind.QUOTE,
    '```\nprint("\n```\nafter': TextKind.PROSE,
}


def _reader() -> TextKindReader:
    return TextKindReader(lambda token: bytes([token]))


@pytest.mark.parametrize("text", CASES)
def test_the_end_of_a_text(text: str) -> None:
    reader = _reader()
    reader.feed(list(text.encode()))
    assert reader.current is CASES[text]


@given(st.sampled_from(sorted(CASES)), st.lists(st.integers(1, 5), max_size=60))
def test_steps_of_any_size_give_the_same(text: str, sizes: list[int]) -> None:
    reader, left = _reader(), list(text.encode())
    for size in sizes:
        reader.feed(left[:size])
        left = left[size:]
    reader.feed(left)
    assert reader.current is CASES[text]


def test_a_new_reply_begins_anew() -> None:
    reader = _reader()
    reader.feed(list(b"```\ncode"))
    reader.begin()
    assert reader.current is TextKind.PROSE
    reader.feed(list(b"words"))
    assert reader.current is TextKind.PROSE
