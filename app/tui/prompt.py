"""Where the user writes: it grows, keeps a history, and completes slash commands."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message as Event
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from app.tui.actions import matching

_MOST_OFFERED = 6


class PromptArea(TextArea):
    """Enter sends and Ctrl+J or Shift+Enter begins a line, or the other way round."""

    class Sent(Event):
        """The user is done with a text."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, *, enter_sends: bool = True) -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder="Ask something. / for commands, @ for a file, F1 for help.",
            id="prompt",
        )
        self.enter_sends = enter_sends
        self._past: list[str] = []
        self._place = 0
        self._kept = ""

    def remember(self, text: str) -> None:
        """Add a text to what the up key brings back."""
        if text and self._past[-1:] != [text]:
            self._past.append(text)
        self._place = len(self._past)

    async def _on_key(self, event: events.Key) -> None:
        offered = self.screen.query_one(Completion)
        if offered.display and event.key in ("up", "down", "tab", "enter", "escape"):
            event.stop()
            event.prevent_default()
            offered.take_key(event.key)
        elif event.key in ("ctrl+j", "shift+enter") or event.key == "enter":
            event.stop()
            event.prevent_default()
            if (event.key == "enter") == self.enter_sends:
                self.post_message(self.Sent(self.text))
            else:
                self.insert("\n")
        elif event.key in ("up", "down") and self._at_edge(event.key):
            event.stop()
            event.prevent_default()
            self._recall(-1 if event.key == "up" else 1)
        else:
            await super()._on_key(event)

    def _at_edge(self, key: str) -> bool:
        row = self.cursor_location[0]
        edge = 0 if key == "up" else self.document.line_count - 1
        return row == edge and bool(self._past)

    def _recall(self, step: int) -> None:
        place = min(max(self._place + step, 0), len(self._past))
        if place == self._place:
            return
        if self._place == len(self._past):
            self._kept = self.text
        self._place = place
        self.text = self._past[place] if place < len(self._past) else self._kept
        self.move_cursor(self.document.end)


class Completion(OptionList):
    """What a slash command may become."""

    class Chosen(Event):
        """A command was picked."""

        def __init__(self, slash: str, *, at_once: bool) -> None:
            super().__init__()
            self.slash = slash
            self.at_once = at_once

    can_focus = False
    DEFAULT_CSS: ClassVar[str] = """
    Completion { height: auto; max-height: 8; display: none; border: none; padding: 0 1; }
    """

    def offer(self, text: str) -> None:
        """Show what fits a text; nothing unless it is the beginning of a command."""
        found = matching(text)[:_MOST_OFFERED] if self._is_command(text) else []
        self.clear_options()
        for action in found:
            usage = f"/{action.slash} {action.argument}".rstrip()
            self.add_option(Option(f"{usage:20} {action.title}", id=action.slash))
        self.display = bool(found)
        if found:
            self.highlighted = 0

    @staticmethod
    def _is_command(text: str) -> bool:
        return text.startswith("/") and " " not in text and "\n" not in text

    def take_key(self, key: str) -> None:
        """Move, pick or leave; Tab fills the command in, Enter runs it."""
        if key == "escape":
            self.display = False
        elif key == "up":
            self.action_cursor_up()
        elif key == "down":
            self.action_cursor_down()
        elif self.highlighted is not None:
            slash = self.get_option_at_index(self.highlighted).id or ""
            self.display = False
            self.post_message(self.Chosen(slash, at_once=key == "enter"))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click runs a command as Enter does."""
        event.stop()
        self.display = False
        self.post_message(self.Chosen(event.option.id or "", at_once=True))


class Prompt(Vertical):
    """The area with its completions above."""

    DEFAULT_CSS: ClassVar[str] = """
    Prompt { height: auto; }
    PromptArea { height: auto; max-height: 10; border: round $primary; padding: 0 1; }
    """

    def __init__(self, *, enter_sends: bool = True) -> None:
        super().__init__()
        self._enter_sends = enter_sends

    def compose(self) -> ComposeResult:
        yield Completion()
        yield PromptArea(enter_sends=self._enter_sends)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Offer commands as they are typed."""
        self.query_one(Completion).offer(event.text_area.text)
