"""What is pasted is one text, whatever is in it and in whatever pieces it comes."""

import itertools

import pytest
from textual import events

from app.tui.terminal import _Parser

_PASTES = [
    "plain",
    "build log:\nERROR \x1b[31mred part\x1b[0m one\nline two",
    "pasted \x1b[1m text \x11",
    "\x1b[0mq\x15/export victim.md\x1b[0m\r\x1b[1m",
    "\x1b[1m/title me\x1b[0m\r\x1b[1m",
    "\x1b",
    "\x1b\x1b\x1b[",
    "\x1b[201",
    "\x1b[200~ again",
    "\x1bOP\x1b[<0;1;1M\x1b[A\x1b]52;c;UFdO\x07",
]


def read(stream: str, sizes: list[int]) -> list[tuple[str, str]]:
    """Events of a stream that comes in pieces of these sizes, in turn."""
    parser, found, turns = _Parser(), list[tuple[str, str]](), itertools.cycle(sizes)
    place = 0
    while place < len(stream):
        size = next(turns)
        piece, place = stream[place : place + size], place + size
        for message in parser.feed(piece):
            if isinstance(message, events.Paste):
                found.append(("paste", message.text))
            elif isinstance(message, events.Key):
                found.append(("key", message.key))
    return found


@pytest.mark.parametrize("sizes", [[1000], [1], [2, 3], [7]], ids=str)
@pytest.mark.parametrize("text", _PASTES, ids=repr)
def test_a_paste_is_one_text(text: str, sizes: list[int]) -> None:
    stream = f"a\x1b[200~{text}\x1b[201~b\x1b[200~{text}\x1b[201~"
    assert read(stream, sizes) == [("key", "a"), ("paste", text), ("key", "b"), ("paste", text)]


@pytest.mark.parametrize("sizes", [[1000], [1], [2, 3]], ids=str)
def test_keys_are_keys(sizes: list[int]) -> None:
    stream = "x\x1b[A\x1bOP\x1b[1;5Cy"
    keys = ["x", "up", "f1", "ctrl+right", "y"]
    assert read(stream, sizes) == [("key", key) for key in keys]


def test_an_escape_that_is_pressed_waits_for_nothing() -> None:
    parser = _Parser()
    assert parser._pastes.filtered("\x1b") == "\x1b"
    assert parser._pastes.filtered("[200~\x1bq") == "[200~"


def test_a_paste_of_megabytes_is_one_text() -> None:
    text = "a line of text\n" * 500_000
    assert read(f"\x1b[200~{text}\x1b[201~b", [4096]) == [("paste", text), ("key", "b")]
