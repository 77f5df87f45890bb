"""Finds a text in the messages of a chat, one place after the other."""

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import HorizontalGroup
from textual.widgets import Input, Static

from app.dialogue.tree import Turn
from app.history.schema import matches
from app.tui.chat.view import ChatView
from app.tui.text_fields import PrintableInput
from app.tui.widgets import in_turn
from backends.chat.reply_form import split

if TYPE_CHECKING:
    from app.tui.chat.messages import MessageView

Place = tuple[Turn, int, int]
"""A message, and from where to where in its text; twice 0 for a file of it."""

_FOLLOW_SECONDS = 0.25
"""Between two looks whether the chat has grown or changed."""


class FindBar(HorizontalGroup):
    """A field above the prompt, shown while it has the focus; what it finds is marked."""

    BINDINGS: ClassVar = [
        Binding("enter,down,ctrl+f", "step(1)", "next", priority=True),
        Binding("up,shift+enter", "step(-1)", "previous", priority=True),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    FindBar { height: 1; padding: 0 1; display: none; }
    FindBar > Input, FindBar > Input:focus { width: 1fr; background-tint: $surface 0%; }
    FindBar > Static { width: auto; margin: 0 0 0 2; color: $text-muted; }
    """

    def __init__(self, view: ChatView) -> None:
        super().__init__()
        self._view = view
        self._query = PrintableInput(placeholder="Find in this chat", compact=True)
        self._count = Static()
        self._at: Place | None = None
        self._marked: MessageView | None = None
        self._searched_texts: list[tuple[Turn, str]] = []

    def on_mount(self) -> None:
        self.set_interval(_FOLLOW_SECONDS, in_turn(self, self._follow))

    def compose(self) -> ComposeResult:
        yield self._query
        yield self._count

    async def open(self, query: str) -> None:
        """Begin to find; a text that only another version holds has that one shown."""
        self.display = True
        self._query.focus()
        dialogue = self._view.dialogue
        if query and not any(_places(turn, query) for turn in dialogue.turns):
            held = (turn for turn in dialogue.all_turns if _places(turn, query))
            if (turn := next(held, None)) is not None:
                await self._view.show_turn(turn)
        if query != self._query.value and query:
            self._query.value = query  # which finds it
        else:
            await self.action_step(0)

    @on(Input.Changed)
    async def _searched(self, event: Input.Changed) -> None:
        event.stop()
        self._at = None
        await self.action_step(1)

    def on_descendant_blur(self) -> None:
        self.display = False
        self._unmark()

    async def _follow(self) -> None:
        """Count anew in a chat that has changed; the view stays on the place it shows."""
        if self.display and self._searched_texts != self._texts:
            await self.action_step(0)

    @property
    def _texts(self) -> list[tuple[Turn, str]]:
        return [(turn, turn.text) for turn in self._view.dialogue.turns]

    async def action_step(self, step: int) -> None:
        """Go on to the next place (1), or back (-1); to the first if that of before is gone."""
        query, self._searched_texts = self._query.value.strip(), self._texts
        found = [place for turn in self._view.dialogue.turns for place in _places(turn, query)]
        number = (found.index(self._at) + step) % len(found) if self._at in found else 0
        self._count.update(f"{number + 1} of {len(found)}" if found else "none" if query else "")
        if step == 0 and self._marked is not None and self._at in found:
            return
        self._unmark()
        self._at = found[number] if found else None
        if self._at is not None:
            turn, start, end = self._at
            self._marked = view = await self._view.transcript.reveal(turn)
            view.mark(start, end)
            self.call_after_refresh(self._view.transcript.scroll_to_row, view, start)

    def _unmark(self) -> None:
        if self._marked is not None and self._marked.is_attached:
            self._marked.mark(0, 0)
        self._marked = None


def _places(turn: Turn, query: str) -> list[Place]:
    begin = len(turn.text) - len(split(turn.text).answer)
    found = [(turn, start, end) for start, end in matches(turn.text, query) if start >= begin]
    held = any(matches(one.text, query) for one in turn.attachments)
    return found or [(turn, 0, 0)] * held
