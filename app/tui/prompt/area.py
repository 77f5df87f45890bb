"""The text area of the prompt: sending, earlier texts, completion and the keys that interrupt."""

from collections.abc import Mapping
from pathlib import Path

from textual import events
from textual.actions import SkipAction
from textual.document._document import EditResult, Location
from textual.reactive import reactive
from textual.strip import Strip

from app.actions import ACTIONS, BY_SLASH, nearest_command, parse, unknown_command
from app.chat.attachments import Attachment, with_pastes
from app.chat.named_files import quoted
from app.dialogue.tree import USER
from app.printable import one_line
from app.settings.presets import PROMPTS, expanded, prompts
from app.tui.keymap import keys_of, sending_key
from app.tui.prompt.completion import ARGUMENT, COMMAND, Completion
from app.tui.prompt.folding import FoldingArea, PromptText
from app.tui.store import Store
from app.tui.terminal import copy
from app.tui.widgets import Wanted
from app.tui.wording import SEPARATOR, fault
from backends.base import SpecchatError

_EMPTY = PromptText()


class InputHistory:
    """Sent texts, oldest first, followed by what is being typed.

    A text changed while browsing is kept, and becomes an entry of its own when another is sent.
    """

    def __init__(self) -> None:
        self._past: list[PromptText] = []
        self._index = 0
        self._changed: dict[int, PromptText] = {}

    def unsent(self, current: PromptText) -> list[PromptText]:
        """What was typed and not sent, oldest first. current: what now stands in the prompt."""
        return [text for _, text in sorted({**self._changed, self._index: current}.items())]

    def remember(self, written: PromptText) -> list[PromptText]:
        """Add a text, and begin browsing behind it again; returns those changed while browsing."""
        changed = [text for _, text in sorted(self._changed.items())]
        for text in (*changed, written):
            self._append(text)
        self._changed.clear()
        self._index = len(self._past)
        return changed

    def move(self, step: int, current: PromptText) -> PromptText | None:
        index = min(max(self._index + step, 0), len(self._past))
        if index == self._index:
            return None
        if current != self._at(self._index):
            self._changed[self._index] = current
        self._index = index
        return self._at(index)

    def _append(self, written: PromptText) -> None:
        if written.text.strip() and self._past[-1:] != [written]:
            self._past.append(written)

    def _at(self, index: int) -> PromptText:
        if index in self._changed:
            return self._changed[index]
        return self._past[index] if index < len(self._past) else _EMPTY


_COMPLETION_KEYS = frozenset({"up", "down", "tab", "enter", "escape"})

_TEXT_ACTIONS = frozenset({"stop", "undo", "redo"})


class PromptArea(FoldingArea):
    """Enter sends and Ctrl+J or Shift+Enter starts a new line, or the other way round."""

    quits_next: reactive[bool] = reactive(False)
    """Whether Ctrl+C was pressed with nothing left to do: pressed again, it quits."""

    edited_version: reactive[int | None] = reactive(None)
    """Number of the version that sending adds; None unless a question is being edited."""

    def __init__(self, store: Store, completion: Completion) -> None:
        super().__init__("Ask anything")
        self._store = store
        self._completion = completion
        self._past = InputHistory()
        self._doubted = ""
        """The text whose sending was refused once."""
        self._leaving: list[PromptText] = []
        """Texts that have left the prompt, and that the screen has not kept yet."""
        self._before_edit = PromptText()
        self._original = PromptText()
        """The question that is edited, as it was."""
        self._was_escape = False
        self._undone_by_app = 0
        self._faulty = ""
        """The text that the fault is about."""
        self._filled: tuple[str, tuple[int, int]] | None = None
        """Text and cursor after a completion that ended in a space."""

    @property
    def _action_keys(self) -> Mapping[str, str]:
        """Actions by key, but for those that text changes the meaning of."""
        own = self._store.preferences.keys
        return {
            key: action.name
            for action in ACTIONS
            if action.name not in _TEXT_ACTIONS
            for key in keys_of(action, own).split(",")
            if key
        }

    # Text

    @property
    def unsent(self) -> list[PromptText]:
        """What was typed and not sent, also before earlier texts were browsed or one was edited."""
        if self.edited_version is None:
            return [*self._leaving, *self._past.unsent(self.written)]
        edit = [self.written] if self.written != self._original else []
        return [*self._leaving, self._before_edit, *edit]

    def write(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        """Replace the text; what stood there is among the earlier texts, and one undo away."""
        self._set_aside(self.written)
        self.rewrite(PromptText(text, attachments))

    def put_before(self, written: PromptText) -> None:
        """Insert a text, in lines of its own, before what is being typed; not into an edit.

        It stands nowhere else any more, so undo does not take it away.
        """
        if self.edited_version is not None:
            self._before_edit = _before(written, self._before_edit)
            return
        text = self.attached.adopt(written)
        joined = "\n\n".join(filter(None, [text, self.text]))
        self.rewrite(PromptText(joined))
        self.history.clear()

    def kept(self, written: PromptText) -> None:
        if written in self._leaving:
            self._leaving.remove(written)

    def text_changed(self) -> None:
        if self.text != self._faulty:
            self.clear_fault()
        if self.text:
            self._undone_by_app = 0
        self.suggest()

    def show_fault(self, text: str) -> None:
        """Show an error about the text as it now is until the text changes."""
        self._faulty = self.text
        self._doubted = ""
        self.fault = text

    def clear_fault(self) -> None:
        """Remove the error; what is doubted is told again before it is sent."""
        self._doubted = ""
        self.fault = ""

    def _watch_fault(self) -> None:
        self._faulty = self.text

    def remember(self, written: PromptText) -> None:
        """Add a text to the earlier ones; those changed among them are kept as if cleared."""
        for changed in self._past.remember(written):
            self._clear(changed)

    def _set_aside(self, written: PromptText) -> None:
        """Keep a text that is cleared without being sent, here and for the next start."""
        self.remember(written)
        self._clear(written)

    def _clear(self, written: PromptText) -> None:
        text = written.text.strip()
        if text and parse(text) is None:
            self._leaving.append(written)
            self.post_message(Wanted("keep_cleared", written))

    def _delete_via_keyboard(self, start: Location, end: Location) -> EditResult | None:
        """Delete a part; a whole text that is deleted at once is among the earlier ones."""
        is_whole = {start, end} == {(0, 0), self.document.end}
        before = self.written if is_whole else PromptText()
        is_original = self.edited_version is not None and before == self._original
        if len(before.text) > 1 and not is_original:
            self._set_aside(before)
        return super()._delete_via_keyboard(start, end)

    def take(self) -> PromptText:
        """Return the text and clear the prompt, so that later keys start a new text."""
        written = self.written
        self.rewrite(PromptText())
        self.history.clear()
        self.attached.clear()
        return written

    def begin_edit(
        self, question: PromptText, version: int, typed: PromptText | None = None
    ) -> None:
        self.end_edit()
        self._before_edit = self.take()
        self._original = question
        self.rewrite(typed or question)
        self.history.clear()
        self.edited_version = version

    def end_edit(self) -> None:
        """Restore the prompt as it was before the edit; a changed text joins the earlier ones."""
        if self.edited_version is None:
            return
        typed = self._leave_edit()
        if typed != self._original:
            self._set_aside(typed)

    def _leave_edit(self) -> PromptText:
        """Restore the prompt as it was before the edit, and return the edit."""
        self.edited_version = None
        typed = self.take()
        self.rewrite(self._before_edit)
        self.history.clear()
        return typed

    def render_line(self, y: int) -> Strip:
        """Render a line; nothing where no column is left, which Textual's placeholder cannot."""
        return super().render_line(y) if self.content_size.width else Strip.blank(0)

    def suggest(self) -> None:
        is_command = self.edited_version is None
        self._completion.suggest(self.text if is_command else "", self._before_cursor)
        if self.fault:  # the text is complete, and wrong
            self._completion.hide()

    def complete(self, suggestion: str, *, run: bool) -> None:
        """Accept a suggestion; run: run a command instead of filling it in."""
        kind, name = suggestion[:1], suggestion[1:]
        if kind == ARGUMENT:
            self.rewrite(PromptText(name))
            if run and (name.startswith("/folder ") or not name.endswith((" ", "/"))):
                self._send_or_break(sends=True)
        elif kind != COMMAND:
            self._complete_file(name)
        elif run and (action := BY_SLASH.get(name)) and not action.needs_argument:
            self.take()
            self.post_message(Wanted("run_typed", action, "", f"/{name}"))
        else:
            self.rewrite(PromptText(f"/{name} "))
            self._filled = self.text, self.cursor_location

    def _complete_file(self, name: str) -> None:
        row, column = self.cursor_location
        start = self._before_cursor.rindex("@")
        if self.document.get_line(row)[column : column + 1] == " ":
            column += 1
        after = "" if name.endswith("/") else " "  # a folder is completed further
        result = self.replace(f"@{quoted(name)}{after}", (row, start), (row, column))
        self.move_cursor(result.end_location)
        self._filled = (self.text, self.cursor_location) if after else None

    @property
    def _before_cursor(self) -> str:
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    # Keys

    async def _on_key(self, event: events.Key) -> None:
        if self._completion.display:
            self.suggest()  # the suggestions may be older than the last keys
        self.quits_next = self.quits_next and event.key == "ctrl+c"
        self._was_escape = self._was_escape and event.key == "escape"
        if not self._handle(event.key):
            name = self._action_keys.get(event.key)
            if name is None:
                return
            self.post_message(Wanted("perform", name))
        event.stop()
        event.prevent_default()

    def _handle(self, key: str) -> bool:
        is_chosen = self._completion.highlighted is not None or key != "enter"
        if self._completion.display and key in _COMPLETION_KEYS and is_chosen:
            self._choose(key)
            return True
        match key:
            case "enter" | "ctrl+j" | "shift+enter":
                self._send_or_break(sends=(key == "enter") == self._store.preferences.enter_sends)
            case "space" if self._filled == (self.text, self.cursor_location):
                self._filled = None  # the completion has put one there already
            case "up" | "down":
                return self._browse(key)
            case "left" | "right" if not self.text and self.edited_version is None:
                self.post_message(Wanted("show_version", -1 if key == "left" else 1))
            case "tab":
                self.post_message(Wanted("select_last"))
            case "escape":
                return self._leave()
            case "ctrl+c" if not self._is_selecting:
                self.interrupt()
            case "ctrl+d" if not self.text:
                self.post_message(Wanted("perform", "quit"))
            case _:
                return False
        return True

    def _choose(self, key: str) -> None:
        if key == "escape":
            self._completion.hide()
        elif key == "up":
            self._completion.action_cursor_up()
        elif key == "down":
            self._completion.action_cursor_down()
        else:
            self.complete(self._completion.pick(), run=key == "enter")

    def _leave(self) -> bool:
        """Leave the edit, or select the last question at the second key; False to pass it on."""
        if self.edited_version is not None:
            self.end_edit()
            self.post_message(Wanted("edit_ended"))
            return True
        if self._store.is_answering:
            return False
        if self._was_escape:
            self.post_message(Wanted("select_last", USER))
        self._was_escape = not self._was_escape
        return not self._was_escape

    @property
    def _is_selecting(self) -> bool:
        """Whether there is a selection to copy, here or in the conversation."""
        return bool(self.selected_text or self.screen.get_selected_text())

    def interrupt(self) -> None:
        """Stop a command or the answer, else clear the prompt, else quit the second time."""
        if self._store.is_answering or self._store.runs_command:
            self.post_message(Wanted("perform", "stop"))
        elif self.text:
            self.write("")
        elif self.quits_next:
            self.post_message(Wanted("perform", "quit"))
        else:
            self.quits_next = True

    def action_copy(self) -> None:
        if not self.selected_text:
            raise SkipAction
        self.notify(copy(self.app, self.selected_text, "the selection"))

    def action_cursor_page_up(self) -> None:
        """Scroll up: the conversation, unless the prompt itself has more than it shows."""
        if self.max_scroll_y:
            super().action_cursor_page_up()
        else:
            self.post_message(Wanted("scroll_page", -1))

    def action_cursor_page_down(self) -> None:
        """Scroll down, as up."""
        if self.max_scroll_y:
            super().action_cursor_page_down()
        else:
            self.post_message(Wanted("scroll_page", 1))

    def action_undo(self) -> None:
        """Undo an edit of the text; the app's undo takes over where there is nothing typed."""
        if not self.text and not self.history.undo_stack:
            self._undone_by_app += 1
            raise SkipAction
        super().action_undo()

    def action_redo(self) -> None:
        """Redo an edit of the text; the app's redo takes over where there is nothing typed."""
        if not self.text and (self._undone_by_app or not self.history.redo_stack):
            self._undone_by_app = max(0, self._undone_by_app - 1)
            raise SkipAction
        super().action_redo()

    # Sending

    def _send_or_break(self, *, sends: bool) -> None:
        chips, typed = self.split
        if not sends:
            self.insert("\n")
        elif not self.text.strip():
            self.post_message(Wanted("send_next"))
        elif self.edited_version is not None:
            if not self._is_doubtful():
                self._send(self._leave_edit(), is_edit=True)
        elif typed.text.startswith("!") and self.attached.spans(typed.text):
            self.fault = "a command is typed in full: a folded text cannot be part of it"
        elif (command := parse(typed.text)) is not None:
            self.take()
            if chips.text:
                self.rewrite(chips)
                self.history.clear()
            self.remember(typed)
            self.post_message(Wanted("run_typed", *command, typed.text))
        elif not self._is_doubtful():
            self._ask(chips, typed)

    def _ask(self, chips: PromptText, typed: PromptText) -> None:
        """Send a question, or that of a prompt, which has the attachments for arguments."""
        called = f"{typed.text} {chips.text}".strip()
        try:
            text = expanded(called, self._prompts)
        except SpecchatError as error:
            self.fault = fault(error)
        else:
            self._send(self.take(), text if text != called else "")

    @property
    def _prompts(self) -> Path:
        return self._store.preferences.file.with_name(PROMPTS)

    def _send(self, written: PromptText, text: str = "", *, is_edit: bool = False) -> None:
        """Send what was written, with files that are gone. text: what it stands for."""
        self.remember(written)
        sent = PromptText(text or written.text.strip(), written.attachments)
        self._leaving.append(sent)
        self.post_message(Wanted("submit", sent, is_edit))

    def _is_doubtful(self) -> bool:
        if self.text == self._doubted:
            return False
        self.fault = self._doubt()
        self._doubted = self.text if self.fault else ""
        return bool(self.fault)

    def _doubt(self) -> str:
        text, typed = self.text.strip(), self.split[1].text
        again = f"{SEPARATOR}{sending_key(self._store.preferences)} again sends"
        is_command = self.edited_version is None
        if parse(typed.partition("\n")[0]):
            why = "a command is a line of its own" if is_command else "an edit runs no commands"
            return f"{why}{again} all of it as a question"
        word = unknown_command(typed) if is_command else None
        if word is not None and word[1:] not in prompts(self._prompts):
            nearest = nearest_command(word)
            hint = f"did you mean {nearest}?" if nearest else "F1 lists all commands"
            return f"no {word}; {hint}{again} it as a question"
        faults = self.attached.faults(text) if "@" in text else []
        if faults is None:
            return f"a file is still being read{again} your text when it is"
        without = f"your text without the file{'s' * (len(faults) > 1)}"
        return f"{one_line(SEPARATOR.join(faults))}{again} {without}" if faults else ""

    # Earlier texts

    def _browse(self, key: str) -> bool:
        is_at_edge = self.cursor_at_first_line if key == "up" else self.cursor_at_last_line
        if not is_at_edge or self.edited_version is not None:
            return False
        if key == "up" and self._store.queued and not self.text:
            self.post_message(Wanted("take_back"))
            return True
        written = self._past.move(-1 if key == "up" else 1, self.written)
        if written is not None:
            self.rewrite(written)
        elif key == "down" and not self.text:
            self.post_message(Wanted("focus_welcome"))
        return written is not None


def _before(first: PromptText, second: PromptText) -> PromptText:
    """Two texts as one; the pastes of the first stand in it in full, apart from the other's."""
    text = with_pastes(first.text, first.attachments)
    return PromptText("\n\n".join(filter(None, [text, second.text])), second.attachments)
