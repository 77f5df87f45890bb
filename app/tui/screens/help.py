"""Help: keys of the focused widget, then all keys and commands, then the terms."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import ClassVar

from textual.binding import Binding
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static, TextArea

from app.actions import ACTIONS, Action
from app.tui.keymap import keys_of
from app.tui.keys_bar import shown_key
from app.tui.lists import PageScreen
from app.tui.panel.graph import TERMS, Helpable
from app.tui.panel.panel import Panel
from app.tui.store import Store
from app.tui.widgets import ByWidth, is_narrow

_INDENT = 2
_LEFT = 24
"""Columns of keys and commands, and of terms, beside their descriptions."""

Lines = tuple[tuple[str, str], ...]

_SEND = ("Enter", "send; while an answer comes, queue")
_NEW_LINE = ("Ctrl+J, Shift+Enter", "new line")
_PROMPT: Lines = (
    ("↑ ↓", "earlier questions; with a queue, ↑ takes the last one back"),
    ("← →", "other versions, if nothing is typed"),
    ("Tab", "complete; else select a message"),
    ("/", "commands and prompts"),
    ("@file", 'add a text file; @"a file" one with spaces'),
    ("Ctrl+C", "copy the selection; else stop the answer; else clear; twice, quit"),
    ("Ctrl+D", "quit, if nothing is typed"),
    ("Ctrl+Z", "undo the last action, if nothing is typed"),
    ("Esc Esc", "select the last question"),
)
_MESSAGES: Lines = (
    ("↑ ↓", "previous and next message"),
    ("Enter", "edit a question, copy an answer, unfold a file"),
    ("Tab", "citations of an answer, which Enter opens"),
    ("← →", "other versions"),
    ("Page Up, Page Down", "scroll"),
    ("Esc, or typing", "return to the prompt"),
)
_PANEL: Lines = (
    ("↑ ↓", "explain another row; Enter opens a passage"),
    ("F2", "details, then close"),
    ("Esc", "return to the prompt"),
)


class HelpScreen(PageScreen):
    """Explains keys, commands and terms; focused: the widget whose keys come first."""

    BINDINGS: ClassVar = [Binding("f1", "dismiss", show=False)]
    DEFAULT_CSS: ClassVar[str] = "HelpScreen VerticalScroll { overflow-y: scroll; }"

    def __init__(self, store: Store, focused: Widget | None = None) -> None:
        page = Static(ByWidth(lambda width: Content("\n").join(self._lines(width))))
        super().__init__("Help", page)
        self._served_at = store.served_at
        self._preferences = store.preferences
        self._focused = focused

    def _lines(self, width: int) -> Iterator[Content]:
        for number, (title, rows) in enumerate(self._sections()):
            if number:
                yield Content("")
            yield from (Content.styled(line, "bold") for line in textwrap.wrap(title, width))
            for left, text in rows:
                yield from _row(left, text, width)

    def _sections(self) -> Iterator[tuple[str, Iterable[tuple[str, str]]]]:
        sends = (_SEND, _NEW_LINE)
        if not self._preferences.enter_sends:
            sends = ((_NEW_LINE[0], _SEND[1]), (_SEND[0], _NEW_LINE[1]))
        prompt = ("In the prompt", (*sends, *_PROMPT))
        messages = ("On a selected message", _MESSAGES)
        panel = ("In the panel", _PANEL)
        if isinstance(self._focused, Helpable):
            yield self._focused.help_text, ()
        if isinstance(self._focused, Panel):
            sections = (panel, prompt, messages)
        elif self._focused is None or isinstance(self._focused, (TextArea, Helpable)):
            sections = (prompt, messages, panel)
        else:
            sections = (messages, prompt, panel)
        yield sections[0]
        if self._served_at is not None:
            yield "Other programs reach this model at", [(self._served_at.words, "")]
        yield "Everywhere", [self._action(action) for action in ACTIONS]
        yield from sections[1:]
        yield "Words", [(term.name, term.text) for term in TERMS]

    def _action(self, action: Action) -> tuple[str, str]:
        keys = keys_of(action, self._preferences.keys)
        names = ", ".join(shown_key(key) for key in keys.split(",") if key)
        command = f"{', '.join(action.commands)} {action.argument}".strip()
        return "  ".join(filter(None, [names, command])), action.title


def _row(left: str, text: str, width: int) -> Iterator[Content]:
    is_below = is_narrow(width)
    indent = 2 * _INDENT if is_below else _LEFT + _INDENT
    lines = textwrap.wrap(text, max(width - indent, 1))
    head = " " * _INDENT + left
    if is_below or len(left) >= _LEFT:
        yield Content(head)
    else:
        first, *lines = lines or [""]
        yield Content.assemble(head.ljust(indent), (first, "$text-muted"))
    for line in lines:
        yield Content.assemble(" " * indent, (line, "$text-muted"))
