"""Commands on the app itself: help, panel, editor and quit."""

import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from textual.app import App

from app.tui.appearance import Appearance
from app.tui.prompt.prompt_area import PromptArea
from app.tui.screens.help_screen import HelpScreen
from app.tui.status.panel import Panel
from backends.base import UsageError


@dataclass(frozen=True, slots=True)
class AppCommands:
    """Help, the live panel, the user's editor, and quitting."""

    app: App[Any]
    appearance: Appearance
    live_panel: Panel
    prompt: PromptArea

    def help(self) -> None:
        self.app.push_screen(HelpScreen(self.appearance.preferences))

    def panel(self) -> None:
        self.appearance.change({"panel": "hidden" if self.live_panel.display else "shown"})

    def editor(self) -> None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor:
            raise UsageError("no editor is configured", "$VISUAL and $EDITOR are not set")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "question.md"
            file.write_text(self.prompt.text, encoding="utf-8")
            try:
                with self.app.suspend():
                    subprocess.run([*shlex.split(editor), str(file)], check=False)
            except (OSError, ValueError) as error:
                raise UsageError(f"cannot run {editor}", str(error)) from error
            self.prompt.write(file.read_text(encoding="utf-8").rstrip("\n"))

    def quit(self) -> None:
        self.app.exit()
