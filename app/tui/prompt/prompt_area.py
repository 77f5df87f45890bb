"""The text area of the prompt: sending, input history and completion keys."""

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from app.chat.attachments import quoted
from app.tui.prompt.completion import COMMAND, Completion
from app.tui.prompt.text_fields import PrintableTextArea, run_own_binding

_COMPLETION_KEYS = frozenset({"up", "down", "tab", "enter", "escape"})


class PromptArea(PrintableTextArea):
    """Enter sends and Ctrl+J or Shift+Enter starts a new line, or the other way round."""

    class Submitted(Message):
        """The user sent a text."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class CommandPicked(Message):
        """A slash command was picked from the suggestions, to be run or to be filled in."""

        def __init__(self, slash: str, *, run: bool) -> None:
            super().__init__()
            self.slash = slash
            self.run = run

    def __init__(self, completion: Completion) -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder="Ask something. / for commands, @ for a file, F1 for help.",
            id="prompt",
        )
        self.enter_sends = True
        self._completion = completion
        self._past: list[str] = []
        self._past_index = 0
        self._unsent = ""
        """What was being typed when the user began to browse the history."""

    def write(self, text: str) -> None:
        """Replace the text and put the cursor at its end."""
        self.text = text
        self.move_cursor(self.document.end)

    def put_before(self, text: str, separator: str = "\n\n") -> None:
        """Insert a text before what is being typed."""
        self.write(separator.join(filter(None, [text, self.text])))

    def remember(self, text: str) -> None:
        """Add a text to the input history."""
        if text and self._past[-1:] != [text]:
            self._past.append(text)
        self._past_index = len(self._past)

    def take(self) -> str:
        """Return the text and clear the prompt, so that later keys start a new text."""
        text = self.text
        self.clear()
        return text

    def suggest(self) -> None:
        """Update the suggestions for the text at the cursor."""
        self._completion.suggest(self.text, self._before_cursor)

    def complete(self, suggestion: str, *, run: bool) -> None:
        """Accept a suggestion; run: run a command instead of filling it in."""
        kind, name = suggestion[:1], suggestion[1:]
        if kind == COMMAND:
            self.take()  # now, not with the message: keys typed since belong after the command
            self.post_message(self.CommandPicked(name, run=run))
        else:
            self._complete_file(name)

    def _complete_file(self, name: str) -> None:
        row, column = self.cursor_location
        start = self._before_cursor.rindex("@")
        after = "" if name.endswith("/") else " "  # a folder is completed further
        self.replace(f"@{quoted(name)}{after}", (row, start), (row, column))

    @property
    def _before_cursor(self) -> str:
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    async def _on_key(self, event: events.Key) -> None:
        if self._completion.display:
            self.suggest()  # the suggestions may be older than the last keys
        if not self._handle(event.key):
            await run_own_binding(self, TextArea.BINDINGS, event)
            return
        event.stop()
        event.prevent_default()

    def _handle(self, key: str) -> bool:
        """Handle the prompt's own keys; False for a key that is not one of them."""
        if self._completion.display and key in _COMPLETION_KEYS:
            self._choose(key)
        elif key in ("enter", "ctrl+j", "shift+enter"):
            self._send_or_break(sends=(key == "enter") == self.enter_sends)
        elif key in ("up", "down") and self._is_at_edge(key):
            self._recall(-1 if key == "up" else 1)
        else:
            return False
        return True

    def _choose(self, key: str) -> None:
        if key == "escape":
            self._completion.hide()
        elif key == "up":
            self._completion.action_cursor_up()
        elif key == "down":
            self._completion.action_cursor_down()
        elif (suggestion := self._completion.pick()) is not None:
            self.complete(suggestion, run=key == "enter")

    def _send_or_break(self, *, sends: bool) -> None:
        if not sends:
            self.insert("\n")
        elif self.text.strip():
            self.post_message(self.Submitted(self.take()))

    def _is_at_edge(self, key: str) -> bool:
        row = self.cursor_location[0]
        edge = 0 if key == "up" else self.document.line_count - 1
        return row == edge and bool(self._past)

    def _recall(self, step: int) -> None:
        index = min(max(self._past_index + step, 0), len(self._past))
        if index == self._past_index:
            return
        if self._past_index == len(self._past):
            self._unsent = self.text
        self._past_index = index
        self.write(self._past[index] if index < len(self._past) else self._unsent)
