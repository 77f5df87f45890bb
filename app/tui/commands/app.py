"""Commands on the app itself: help, panel, editor, palette and quit."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from textual.app import App

from app.actions import ACTIONS
from app.tui.chat.view import ChatView
from app.tui.prompt.prompt import Prompt
from app.tui.store import Store
from backends.base import UsageError
from backends.base.safe_files import read_text

Command = Callable[..., Awaitable[None] | None]
"""Called with the argument of the slash command, empty for a key, if the action takes one."""

Perform = Callable[[str, str], Awaitable[bool]]
"""Runs an action with an argument; an error is notified, and the result is then False."""


def commands_of(*groups: object) -> Mapping[str, Command]:
    """Methods of the groups by name, which is the name of the action that each one runs."""
    return {
        action.name: getattr(group, action.name)
        for group in groups
        for action in ACTIONS
        if callable(getattr(type(group), action.name, None))
    }


_MOST_EDITED = 64 << 20
"""Bytes of a question; none is as long."""


def editor_command(editor: str, *, on_windows: bool = os.name == "nt") -> list[str]:
    r"""Words of a command line; on Windows `\` is no escape, and the program may be a script.

    Raises:
        ValueError: a quote is not closed, or there is no word.
    """
    if Path(editor).is_file():
        return [editor]  # its folders may have spaces
    lexer = shlex.shlex(editor, posix=True)
    lexer.commenters, lexer.whitespace_split = "", True
    lexer.escape = "" if on_windows else lexer.escape
    program, *options = lexer
    return [shutil.which(program) or program, *options]


@dataclass(frozen=True, slots=True)
class AppCommands:
    """Help, the live panel, the user's editor, the palette, and quitting."""

    app: App[Any]
    store: Store
    prompt: Prompt
    view: ChatView
    _warned_of: set[str] = field(default_factory=set[str])
    """Why chats were not saved when the user was asked to think again."""

    def help(self) -> None:
        from app.tui.screens.help import HelpScreen

        self.app.push_screen(
            HelpScreen(self.store.preferences, self.app.focused, self.store.served_at)
        )

    def panel(self) -> None:
        """Show the panel, then its details, then neither."""
        store = self.store
        shown = not store.is_panel_shown or not store.shows_details
        store.shows_details = store.is_panel_shown and not store.shows_details
        panel = "shown" if shown else "hidden"
        store.preferences = replace(store.preferences, panel=panel)
        store.is_panel_shown = shown

    def editor(self) -> None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor:
            raise UsageError("no editor is configured", "$VISUAL and $EDITOR are not set")
        written = self.prompt.written
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "question.md"
            file.write_text(written.text, encoding="utf-8")
            try:
                with self.app.suspend():
                    subprocess.run([*editor_command(editor), str(file)], check=False)
                text = read_text(file, _MOST_EDITED).rstrip("\n")
            except (OSError, ValueError) as error:
                raise UsageError(f"cannot run {editor}", str(error)) from error
        self.prompt.write(text, written.attachments)

    def commands(self) -> None:
        self.app.action_command_palette()

    def quit(self) -> None:
        """Quit; a chat that is not saved is given a second thought."""
        fault = self.view.unsaved
        if fault and fault not in self._warned_of:
            self._warned_of.add(fault)
            raise UsageError(f"a chat is not saved: {fault}; again quits and loses it")
        self.app.exit()
