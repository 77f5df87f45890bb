"""A screen with one widget of an answer's text."""

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.widget import Widget

from app.chat.conversation import Conversation
from app.dialogue.tree import ASSISTANT, Turn
from app.engine.reply import Reply, Request
from app.settings.in_effect import Preferences
from app.tui.chat.answer import AnswerView
from app.tui.look import register_themes
from app.tui.store import Store
from app.tui.terminal import show_stand_ins
from tests.fixtures.sessions import GREEDY, give


class Showing(App[None]):
    """One widget on a screen."""

    pilot: Pilot[None]

    def __init__(self, make: Callable[[], Widget]) -> None:
        super().__init__()
        show_stand_ins()
        register_themes(self)
        self.store = Store(Preferences(Path("none")))
        self._make = make

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield self._make()

    @property
    def lines(self) -> list[str]:
        """What is on the screen, without blank lines at its end."""
        strips = self.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips).rstrip().split("\n")

    def segments(self) -> Iterator[Segment]:
        """Every painted segment."""
        for strip in self.screen._compositor.render_strips():
            yield from strip

    def painted(self, variable: str) -> str:
        """Text in the colour of a theme variable."""
        colour = self.theme_variables[variable].lower()
        styled = ((one.text, one.style.color if one.style else None) for one in self.segments())
        return "".join(text for text, found in styled if found and found.name == colour)


class ShowingAnswer(Showing):
    """An answer on a screen."""

    def __init__(self, text: str = "") -> None:
        super().__init__(lambda: self.answer)
        self.turn = Turn(ASSISTANT, text)
        self.reply = Reply(Request(Conversation(), GREEDY, 100, partial=text))
        self.answer = AnswerView(self.turn, self.store)
        self.answer.styles.margin = self.answer.styles.padding = 0

    def grow(self, *pieces: tuple[str, str]) -> None:
        """Append pieces, of a text and an origin, and paint them."""
        give(self.reply, *pieces)
        self.turn.text = self.reply.request.partial + self.reply.text
        self.answer.grow(self.reply)
        self.answer.paint()
