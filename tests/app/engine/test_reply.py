"""Text by origin: every character once, whenever it is taken."""

import pytest

from app.engine.reply import START, Piece, Reply
from decoding.telemetry import Statistics


def reply(text: str, *tokens: tuple[int, str]) -> Reply:
    """A reply with tokens given by the end of their text and their origin."""
    ends, origins = [end for end, _ in tokens], [origin for _, origin in tokens]
    return Reply(Statistics(0.0), text, list(range(len(tokens))), origins, ends)


def test_neighbours_of_one_origin_are_one_piece() -> None:
    pieces, place = reply(
        "abcd", (1, "model"), (2, "lookup"), (3, "lookup"), (4, "model")
    ).pieces_after(START)
    assert pieces == [Piece("a", "model"), Piece("bc", "lookup"), Piece("d", "model")]
    assert place.characters == 4


def test_a_token_without_text_has_no_piece() -> None:
    pieces, _ = reply("ab", (1, "model"), (1, "lookup"), (2, "model")).pieces_after(START)
    assert pieces == [Piece("ab", "model")]


def test_text_that_was_held_back_keeps_its_origin() -> None:
    growing = reply("a", (1, "model"), (3, "lookup"), (5, "model"))
    first, place = growing.pieces_after(START)
    growing.text = "abcd"
    second, place = growing.pieces_after(place)
    growing.text = "abcde"
    third, place = growing.pieces_after(place)
    assert first == [Piece("a", "model")]
    assert second == [Piece("bc", "lookup"), Piece("d", "model")]
    assert third == [Piece("e", "model")]
    assert growing.pieces_after(place) == ([], place)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_taken_in_parts_are_the_whole(size: int) -> None:
    text = "the quick brown fox"
    whole = reply(text, (3, "model"), (9, "lookup"), (9, "ngram"), (15, "lookup"), (19, "model"))
    growing, place = reply("", *zip(whole.token_ends, whole.provenance, strict=True)), START
    origins = ""
    for end in range(size, len(text) + size, size):
        growing.text = text[:end]
        pieces, place = growing.pieces_after(place)
        origins += "".join(piece.origin[0] * len(piece.text) for piece in pieces)
    assert origins == "m" * 3 + "l" * 12 + "m" * 4
