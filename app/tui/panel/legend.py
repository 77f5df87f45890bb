"""What the colours in an answer mean; in the panel until there are figures."""

from typing import ClassVar

from textual.content import Content
from textual.widgets import Static

from app.tui.look.hues import Kind

_MEANINGS = (
    (Kind.LOOKUP, "lookup", "copies from this chat"),
    (Kind.RETRIEVAL, "retrieval", "copies from other chats"),
    (Kind.NGRAM, "ngram", "common phrases"),
    (Kind.MODEL, "a model", "a smaller model guesses"),
)
_INTRODUCTION = """\
Figures appear with the first answer.
Text that a drafter supplied is
coloured while it is new:
"""


class Legend(Static):
    """Each kind of drafter with its hue and where it gets text from."""

    DEFAULT_CSS: ClassVar[str] = "Legend { height: auto; }"

    def __init__(self) -> None:
        rows = [
            Content.assemble(("■", kind.hue), f" {name:<11}{meaning}")
            for kind, name, meaning in _MEANINGS
        ]
        super().__init__(Content("\n").join([Content(_INTRODUCTION), *rows]))
