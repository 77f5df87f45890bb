"""An answer coloured by where each token came from, told apart by more than colour."""

from collections import Counter
from collections.abc import Sequence

from textual.content import Content

from app.answer import Piece
from app.printable import printable
from decoding.events import Origin

_MODEL = {
    Origin.MODEL: ("", "the model itself, nothing drafted"),
    Origin.CORRECTED: ("bold underline $error", "the model's correction of a rejected token"),
    Origin.BONUS: ("italic $accent", "bonus token after a draft that was accepted whole"),
}
_DRAFTED = ("reverse $success", "underline $warning", "reverse $secondary", "underline2 $primary")


def styles(pieces: Sequence[Piece]) -> dict[str, str]:
    """A style for every origin that occurs; drafters take theirs in order of appearance."""
    found: dict[str, str] = {}
    drafters = 0
    for piece in pieces:
        if piece.origin in found:
            continue
        if piece.origin in _MODEL:
            found[piece.origin] = _MODEL[Origin(piece.origin)][0]
        else:
            found[piece.origin] = _DRAFTED[drafters % len(_DRAFTED)]
            drafters += 1
    return found


def painted(pieces: Sequence[Piece]) -> Content:
    """The text with its styles, then the legend with counts."""
    known = styles(pieces)
    text = Content.assemble(*((printable(piece.text), known[piece.origin]) for piece in pieces))
    return Content("\n\n").join([text, legend(pieces)])


def legend(pieces: Sequence[Piece]) -> Content:
    """What each style means, and how many tokens bear it."""
    counts = Counter(piece.origin for piece in pieces)
    lines = [
        Content.assemble((f" {_name(origin)} ", style), f" {counts[origin]} · {_meaning(origin)}")
        for origin, style in styles(pieces).items()
    ]
    return Content("\n").join(lines)


def _name(origin: str) -> str:
    return origin.rsplit("/", 1)[-1]


def _meaning(origin: str) -> str:
    return _MODEL[Origin(origin)][1] if origin in _MODEL else "drafted and accepted"
