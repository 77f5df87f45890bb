"""The kind of text at the end of a reply, however it is cut into tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoding.context_class import ContextClass, ContextReader

CASES = {
    "": ContextClass.PROSE,
    "Once upon a time": ContextClass.PROSE,
    "Here:\n- milk": ContextClass.LIST,
    "Here:\n- milk\n": ContextClass.LIST,
    "Here:\n- milk\n\nThat is all": ContextClass.PROSE,
    "1. first\n2) second": ContextClass.LIST,
    "  * nested": ContextClass.LIST,
    "2024 was a year": ContextClass.PROSE,
    "• dot": ContextClass.LIST,
    "Run:\n```python\nx = [1, 2]\n- 3": ContextClass.CODE,
    "Run:\n```": ContextClass.CODE,
    "Run:\n```\nx\n```\nDone": ContextClass.PROSE,
    "~~~\ncode": ContextClass.CODE,
    "He said: “I will": ContextClass.QUOTE,
    "He said: “I will” and": ContextClass.PROSE,
    'He said "never': ContextClass.QUOTE,
    'He said "never" and': ContextClass.PROSE,
    'An inch is 1" long.\n\nNext paragraph': ContextClass.PROSE,
    "> as it was": ContextClass.QUOTE,
    '```\nprint("\n```\nafter': ContextClass.PROSE,
}


def _reader() -> ContextReader:
    return ContextReader(lambda token: bytes([token]))


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
    assert reader.current is ContextClass.PROSE
    reader.feed(list(b"words"))
    assert reader.current is ContextClass.PROSE
