"""Where the user writes: it grows, keeps a history, and completes slash commands."""

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message as Event
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from app.attachments import file_names, quoted
from app.printable import one_line
from app.tui.actions import matching
from app.tui.prompt.ordered_keys import act_on_own_key
from app.tui.prompt.text_fields import PrintableTextArea

_MOST_OFFERED = 6


class PromptArea(PrintableTextArea):
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

    @property
    def before_cursor(self) -> str:
        """The line at work up to the cursor."""
        row, column = self.cursor_location
        return self.document.get_line(row)[:column]

    def name_file(self, name: str) -> None:
        """Complete the name of a file that is being typed; after a folder it goes on."""
        row, column = self.cursor_location
        begun = self.before_cursor.rindex("@")
        after = "" if name.endswith("/") else " "
        self.replace(f"@{quoted(name)}{after}", (row, begun), (row, column))

    def write(self, text: str) -> None:
        """Put a text in place of what stands there, the cursor behind it."""
        self.text = text
        self.move_cursor(self.document.end)

    def remember(self, text: str) -> None:
        """Add a text to what the up key brings back."""
        if text and self._past[-1:] != [text]:
            self._past.append(text)
        self._place = len(self._past)

    def take(self) -> str:
        """The text, which leaves the prompt: what is typed from now on is another one."""
        text = self.text
        self.clear()
        return text

    async def _on_key(self, event: events.Key) -> None:
        offered = self.screen.query_one(Completion)
        if offered.display:  # for what stood here when it was made; more may have been typed since
            offered.offer(self.text, self.before_cursor)
        if offered.display and event.key in ("up", "down", "tab", "enter", "escape"):
            event.stop()
            event.prevent_default()
            offered.take_key(event.key)
        elif event.key in ("ctrl+j", "shift+enter") or event.key == "enter":
            event.stop()
            event.prevent_default()
            if (event.key == "enter") != self.enter_sends:
                self.insert("\n")
            elif self.text.strip():
                self.post_message(self.Sent(self.take()))
        elif event.key in ("up", "down") and self._at_edge(event.key):
            event.stop()
            event.prevent_default()
            self._recall(-1 if event.key == "up" else 1)
        else:
            await act_on_own_key(self, TextArea.BINDINGS, event)

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
        self.write(self._past[place] if place < len(self._past) else self._kept)


class Completion(OptionList):
    """What a slash command or the name of a file may become."""

    class Chosen(Event):
        """A command was picked."""

        def __init__(self, slash: str, *, at_once: bool) -> None:
            super().__init__()
            self.slash = slash
            self.at_once = at_once

    class Named(Event):
        """A file or folder was picked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    can_focus = False
    DEFAULT_CSS: ClassVar[str] = """
    Completion {
        height: auto; max-height: 8; display: none; border: none; padding: 0 1;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._offered_for = ("", "")

    def offer(self, text: str, before: str) -> None:
        """Show what fits: a command where text begins one, a file where one is named before."""
        if self._offered_for == (text, before):
            return
        self._offered_for = text, before
        self.clear_options()
        self.add_options(_commands(text) or _files(before))
        self.display = self.option_count > 0
        if self.display:
            self.highlighted = 0

    def take_key(self, key: str) -> None:
        """Move, pick or leave; Tab fills a command in, Enter runs it."""
        if key == "escape":
            self.display = False
        elif key == "up":
            self.action_cursor_up()
        elif key == "down":
            self.action_cursor_down()
        elif self.highlighted is not None:
            self._pick(self.get_option_at_index(self.highlighted), at_once=key == "enter")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click runs a command as Enter does."""
        event.stop()
        self._pick(event.option, at_once=True)

    def _pick(self, option: Option, *, at_once: bool) -> None:
        self.display, self._offered_for = False, ("", "")
        picked = option.id or ""
        if picked.startswith("/"):
            self.screen.query_one(PromptArea).take()
            self.post_message(self.Chosen(picked[1:], at_once=at_once))
        else:
            self.post_message(self.Named(picked[1:]))


def _commands(text: str) -> list[Option]:
    if not text.startswith("/") or " " in text or "\n" in text:
        return []
    return [
        Option(
            Content(f"{f'/{action.slash} {action.argument}':17} {action.title}"),
            id=f"/{action.slash}",
        )
        for action in matching(text)[:_MOST_OFFERED]
    ]


def _files(before: str) -> list[Option]:
    found = file_names(before)[:_MOST_OFFERED]
    return [Option(Content(one_line(name)), id=f"@{name}") for name in found]


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
        """Offer commands and files as they are typed."""
        area = self.query_one(PromptArea)
        self.query_one(Completion).offer(area.text, area.before_cursor)

    @on(Completion.Named)
    def _named(self, event: Completion.Named) -> None:
        event.stop()
        self.query_one(PromptArea).name_file(event.name)
