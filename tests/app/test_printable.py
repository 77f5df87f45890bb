"""The one rule by which foreign text is made printable."""

import itertools
import json
import unicodedata

import pytest
from rich.cells import cell_len

from app.printable import STAND_INS, one_line, printable, printable_json
from tests.fixtures.hostile import HONEST, PIECES, TEXTS, UNENCODABLE


def _steers(character: str) -> bool:
    """By Unicode's classes; controls of direction that it gave up are in none of them."""
    if "\u206a" <= character <= "\u206f":
        return True
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or (
        unicodedata.bidirectional(character)
        in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    )


@pytest.mark.parametrize("text", [*TEXTS, *UNENCODABLE])
def test_nothing_that_steers_is_left(text: str) -> None:
    assert any(map(_steers, text))
    shown = printable(text)
    assert not any(map(_steers, shown))
    assert len(shown) == len(text)
    assert cell_len(shown) == len(text)  # each stand-in has one cell
    assert shown.encode()
    assert "PWN" in shown


@pytest.mark.parametrize("text", HONEST)
def test_honest_text_stays(text: str) -> None:
    assert printable(text) == text


def test_a_stand_in_shows_what_was_there() -> None:
    assert printable("\x1b]52;c;UFdO\x07") == "␛]52;c;UFdO␇"
    assert printable("\x00\x7f\x9b\u202e\ud800") == "␀␡���"


def test_every_character_of_unicode() -> None:
    steering = {code for code in range(0x110000) if _steers(chr(code))}
    assert STAND_INS.keys() == steering - {*map(ord, "\n\t")}


def test_lines_end_as_they_do_everywhere() -> None:
    assert printable("one\r\ntwo\n\tthree") == "one\ntwo\n\tthree"
    assert printable("sudo rm\rls") == "sudo rm␍ls"


def test_a_place_of_one_line_gets_one_line() -> None:
    assert one_line("a name\nof\ttwo\r\nlines") == "a name␊of␉two␍␊lines"
    assert len(one_line("\n".join(TEXTS)).splitlines()) == 1


@pytest.mark.parametrize("pieces", PIECES)
def test_a_sequence_that_comes_in_pieces(pieces: tuple[str, ...]) -> None:
    for cut in itertools.accumulate(pieces):
        assert "\x1b" not in printable(cut)
    assert "".join(map(printable, pieces)) == printable("".join(pieces))


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_printable_and_equal(indent: int | None) -> None:
    value = {text: [text] for text in (*TEXTS, *UNENCODABLE, *HONEST, "a\tb\r\n")}
    text = printable_json(value, indent)
    assert json.loads(text) == value
    assert not any(_steers(one) for one in text if one != "\n")
    assert text.encode()
    assert "Grüße" in text
