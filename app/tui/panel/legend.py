"""What the colours in an answer mean; the panel's page until there are figures."""

from textual.content import Content

from app.tui.look.hues import Kind
from app.tui.panel.line import BLANK, Line
from app.tui.panel.terms import drafter_term

_MEANINGS = (
    (Kind.LOOKUP, "lookup", "copies from this chat"),
    (Kind.RETRIEVAL, "retrieval", "copies from other chats"),
    (Kind.NGRAM, "ngram", "common phrases"),
    (Kind.MODEL, "a model", "a smaller model guesses"),
)


def legend() -> list[Line]:
    """Each kind of drafter with its hue and where it gets text from."""
    return [
        Line.of("Figures appear with the first answer."),
        Line.of("Text that a drafter supplied is"),
        Line.of("coloured while it is new:"),
        BLANK,
        *(
            Line(
                Content.assemble(("■", kind.hue), f" {name:<11}{meaning}"),
                drafter_term(name),
            )
            for kind, name, meaning in _MEANINGS
        ),
    ]
