"""Several answers to one question beside each other, while they are written; one is picked."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from app.dialogue.tree import Turn
from app.engine.answer import Stage
from app.engine.reply import Reply
from app.engine.status import Phase
from app.printable import one_line
from app.tui.chat.answer import AnswerView
from app.tui.chat.pending import PendingAnswer, Several
from app.tui.chat.view import ChatView
from app.tui.store import Store
from app.tui.text_fields import typed
from app.tui.widgets import Wanted, clickable, in_turn
from app.tui.wording import joined

_UPDATE_SECONDS = 1 / 8

_WIDE = 120
"""Columns of a terminal from which the answers stand beside each other; below, one is shown."""

_WRITING = "← → move   Enter pick   Esc stop all"
_STATES = {
    Stage.QUEUED: "waiting",
    Stage.READING: "reading",
    Stage.ANSWERING: "writing",
    Stage.DONE: "writing",  # until its text is shown
}
_WRITTEN = "← → move   Enter pick   Esc back"


class Column(VerticalScroll):
    """One of the answers; it follows the text until that ends, which is then read from its top."""

    def __init__(self, number: int, store: Store) -> None:
        super().__init__()
        self.head = Static(classes="head")
        self.head.auto_links = False
        self._number, self._store = number, store
        self._view: AnswerView | None = None
        self._is_growing = False

    def show_head(self, model: str, state: str) -> None:
        """Show number and state of the answer above it; a click on them selects it."""
        head = Content(joined([f" {self._number}", one_line(model), state]))
        self.head.update(head.stylize(clickable(f"screen.move_to({self._number})")))

    async def follow(self, turn: Turn, line: str, reply: Reply | None) -> None:
        """Show what there is of the answer; reply: what it comes from while it grows."""
        if self._view is None or self._view.turn is not turn:
            self._view = AnswerView(turn, self._store)
            self._view.can_focus = False
            await self.remove_children()
            await self.mount(self._view)
        follows = self.is_vertical_scroll_end  # else the user reads elsewhere
        if reply is not None:
            self._view.grow(reply)
            if follows:
                self.scroll_end(animate=False)
        elif self._is_growing:
            self._view.follow()
            if follows:
                self.scroll_home(animate=False)
        self._is_growing = reply is not None
        self._view.show_line(line)


class SideBySide(Screen[None]):
    """Answers that the chat writes and saves as any other; this shows them, until one is picked.

    title: of the question.
    """

    AUTO_FOCUS: ClassVar[str | None] = "Column"
    BINDINGS: ClassVar = [
        Binding("escape", "leave", "Back"),
        Binding("enter", "pick", "Pick"),
        Binding("left", "move(-1)", "Before", priority=True),
        Binding("right", "move(1)", "Next", priority=True),
        *(Binding(str(number), f"move_to({number})", show=False) for number in range(1, 5)),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    #title, #keys { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    SideBySide #heads { height: 1; margin: 1 0 0 0; }
    SideBySide .head { width: 1fr; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    SideBySide .head.-chosen { color: $primary; background: $primary 20%; text-style: bold; }
    SideBySide #columns { height: 1fr; margin: 1 0; }
    SideBySide Column { width: 1fr; height: 1fr; display: none; scrollbar-size-vertical: 1; }
    SideBySide Column.-chosen, SideBySide.-beside Column { display: block; }
    SideBySide #fault { height: auto; padding: 0 1; display: none; color: $text-error; }
    SideBySide #keys { color: $secondary; }
    """

    def __init__(self, view: ChatView, several: Several, title: str) -> None:
        super().__init__()
        self._view, self._several, self._of = view, several, title
        self._columns = [Column(place, view.store) for place in range(1, len(several.models) + 1)]
        self._chosen = 0
        self._typed = ""
        """What was typed here, which the chat's prompt has."""

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with Horizontal(id="heads"):
            yield from (column.head for column in self._columns)
        with Horizontal(id="columns"):
            yield from self._columns
        yield Static(id="fault")
        yield Static(id="keys")

    def on_mount(self) -> None:
        self._choose(0)
        self.set_interval(_UPDATE_SECONDS, in_turn(self, self._update))

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width >= _WIDE, "-beside")

    def on_key(self, event: events.Key) -> None:
        """Type into the chat's prompt; a digit chooses an answer, until there is a text."""
        text = typed(event)
        if text and (self._typed or text not in "1234"):
            event.stop()
            self._typed += text
            self._view.post_message(events.Key(event.key, event.character))

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self._typed += event.text
        self._view.post_message(events.Paste(event.text))

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        for place, column in enumerate(self._columns):
            if column is event.widget:
                self._choose(place)

    def _choose(self, place: int) -> None:
        self._chosen = place
        for at, column in enumerate(self._columns):
            column.set_class(at == place, "-chosen")
            column.head.set_class(at == place, "-chosen")
        self._columns[place].focus()

    async def _update(self) -> None:
        """Follow the answers; those that will not be written go, and this with the last."""
        several, view = self._several, self._view
        if not self.is_current:  # it was left before its turn came
            return
        models, turns = [*several.models], [*several.turns]
        gone, self._columns = self._columns[len(models) :], self._columns[: len(models)]
        if view.several is not several or not self._columns:
            self.dismiss()
            return
        if self._view.is_idle and len(turns) == 1:  # nothing to compare
            await self._pick(turns[0])
            return
        if self._chosen >= len(self._columns):
            self._choose(len(self._columns) - 1)
        for column in gone:
            await column.head.remove()
            await column.remove()
        for column, model, turn in zip(self._columns, models, turns, strict=True):
            pending = view.pending_of(turn)
            state = "" if pending is None else self._state(pending)
            reply = None if pending is None else pending.answer.reply
            await column.follow(turn, view.line_of(turn), reply)
            column.show_head((model or view.dialogue.model) * any(models), state)
        left = sum(view.pending_of(turn) is not None for turn in turns)
        count = f"{len(turns) - left} of {len(turns)} written" if left else ""
        title = joined([count, one_line(self._of)])
        self.query_one("#title", Static).update(Content.styled(f" {title}", "bold"))
        self.query_one("#fault", Static).display = bool(several.fault)
        self.query_one("#fault", Static).update(Content(f"✕ {one_line(several.fault)}"))
        keys = f" {_WRITTEN if self._view.is_idle else _WRITING}"
        if self._typed:
            keys += f"   In the prompt: {one_line(self._typed)[-30:]}"
        self.query_one("#keys", Static).update(Content(keys))

    def _state(self, pending: PendingAnswer) -> str:
        """What an answer in progress is doing."""
        status = self._view.engine.status
        if status.phase is Phase.LOADING and pending is self._view.own_growing[0]:
            return one_line(status.text)
        return _STATES[pending.answer.stage]

    def action_move(self, step: int) -> None:
        self.action_move_to(self._chosen + 1 + step)

    def action_move_to(self, number: int) -> None:
        if 1 <= number <= len(self._columns):
            self._choose(number - 1)

    async def action_pick(self) -> None:
        await self._pick(self._several.turns[self._chosen])

    async def action_leave(self) -> None:
        """Stop the writing; what is written stays. If none is, show the newest answer."""
        if not self._view.is_idle:
            if not all(one.answer.is_stopped for one in self._view.own_growing):  # else more stops
                self._view.post_message(Wanted("perform", "stop"))
        elif self._several.turns:
            await self._pick(self._several.turns[-1])

    async def _pick(self, turn: Turn) -> None:
        await self._view.pick(turn)
        self.call_later(self._update)  # which dismisses this, once
