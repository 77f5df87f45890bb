"""An answer coloured by the origin of each token; styles differ in more than colour."""

from collections import Counter
from collections.abc import Sequence

from textual.content import Content

from app.engine.answer import Piece
from app.printable import printable
from decoding.events import Origin

_MODEL = {
    Origin.MODEL: ("", "the model itself, nothing drafted"),
    Origin.CORRECTED: ("bold underline $error", "the model's correction of a rejected token"),
    Origin.BONUS: ("italic $accent", "bonus token after a fully accepted draft"),
}
_DRAFTED = ("reverse $success", "underline $warning", "reverse $secondary", "underline2 $primary")


def coloured(pieces: Sequence[Piece]) -> Content:
    """The coloured text, followed by a legend with counts."""
    style_of = styles(pieces)
    text = Content.assemble(*((printable(piece.text), style_of[piece.origin]) for piece in pieces))
    return Content("\n\n").join([text, _legend(pieces, style_of)])


def styles(pieces: Sequence[Piece]) -> dict[str, str]:
    """A style for each origin; drafters get theirs in order of appearance."""
    style_of: dict[str, str] = {}
    drafters = 0
    for origin in dict.fromkeys(piece.origin for piece in pieces):
        if origin in _MODEL:
            style_of[origin] = _MODEL[Origin(origin)][0]
        else:
            style_of[origin] = _DRAFTED[drafters % len(_DRAFTED)]
            drafters += 1
    return style_of


def _legend(pieces: Sequence[Piece], style_of: dict[str, str]) -> Content:
    """What each style means, and its number of tokens."""
    counts = Counter(piece.origin for piece in pieces)
    lines = [
        Content.assemble((f" {_short(origin)} ", style), f" {counts[origin]} · {_meaning(origin)}")
        for origin, style in style_of.items()
    ]
    return Content("\n").join(lines)


def _short(origin: str) -> str:
    return origin.rsplit("/", 1)[-1]


def _meaning(origin: str) -> str:
    return _MODEL[Origin(origin)][1] if origin in _MODEL else "drafted and accepted"
