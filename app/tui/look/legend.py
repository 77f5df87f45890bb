"""What the colours in an answer mean."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Grid, Vertical
from textual.content import Content
from textual.widgets import Static

from app.tui.look.hues import Kind

_MEANINGS = {
    Kind.LOOKUP: ("lookup", "copies from this chat"),
    Kind.RETRIEVAL: ("retrieval", "copies from other chats"),
    Kind.NGRAM: ("ngram", "common phrases"),
    Kind.MODEL: ("a model", "a smaller model guesses"),
}


class Legend(Vertical):
    """Each kind of drafter with its hue and where it gets text from."""

    DEFAULT_CSS: ClassVar[str] = """
    Legend { height: auto; }
    Legend > Static { margin: 0 0 1 0; }
    Legend > Grid { grid-size: 2; grid-columns: 13 1fr; grid-rows: auto; height: auto; }
    """

    def compose(self) -> ComposeResult:
        yield Static("Text that a drafter supplied is coloured while it is new:")
        with Grid():
            for kind, (name, meaning) in _MEANINGS.items():
                yield Static(swatch(kind, name))
                yield Static(meaning)


def swatch(kind: Kind, name: str) -> Content:
    """A square in the kind's hue, and a name; where there are no colours, both in its style."""
    return Content.assemble(("■", kind.hue), " ", name)
