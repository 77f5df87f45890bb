"""A drafter of one's own, trained in the background by `specchat models train` in a child process.

The command measures, predicts, keeps its progress on disk and waits while an answer is written. It
is stopped when the app ends; the same command then goes on.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList, Static

from app.printable import printable
from app.tui.downloads import time_left
from app.tui.screens.lists import ListScreen, more_row
from backends.base import DownloadStoppedError, SpecchatError

COMMAND = (sys.executable, "-P", "-m", "specchat", "models", "train")

_FRESH_SECONDS = 10.0
"""Age of a state up to which its run may be under way: it is written each second."""


class TrainingJob:
    """The command for a model, as a job of Downloads; without options it trains."""

    def __init__(self, states: Path, model: str, *options: str) -> None:
        """states: the folder of runs. Raises OSError: no process can be started."""
        self._states, self._is_plan, self._is_stopped = states, bool(options), False
        self._output = b"", b""
        self._process = subprocess.Popen(
            [*COMMAND, model, "--json", *(options or ("--anyway",))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal is the app's
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self._output = self._process.communicate()

    @property
    def running(self) -> bool:
        return self._reader.is_alive()

    @property
    def progress(self) -> str:
        """Such as "train, 34 %, 50 min left"."""
        if self._is_plan:
            return "measuring, which takes a few minutes"
        return words_of(newest_state(self._states)[0])

    def stop(self) -> None:
        """What is done is kept."""
        self._is_stopped = True
        self._process.terminate()

    def result(self) -> dict[str, Any]:
        """What the command told.

        Raises:
            DownloadStoppedError: it was stopped.
            SpecchatError: it failed.
        """
        if self._is_stopped:
            raise DownloadStoppedError("stopped")
        told, errors = self._output
        try:
            return json.loads(told)
        except ValueError as error:
            lines = printable(errors.decode(errors="replace")).strip().splitlines()
            why = lines[-2:] or ["nothing was told"]
            raise SpecchatError("no drafter was trained", *why) from error


def newest_state(states: Path) -> tuple[Mapping[str, Any], float]:
    """What a run wrote last, and its age in seconds; empty without one."""
    with suppress(OSError, ValueError, TypeError):
        found = [(file.stat().st_mtime, file) for file in states.glob("*/state.json")]
        if found:
            written, file = max(found)
            return dict(json.loads(file.read_text(encoding="utf-8"))), time.time() - written
    return {}, 0.0


def unfinished(states: Path, model: str) -> str:
    """Where a model's run was stopped; empty if none was."""
    state, age = newest_state(states)
    is_stopped = state.get("model") == model and age > _FRESH_SECONDS
    return f"not finished: {words_of(state)}" if is_stopped else ""


def words_of(state: Mapping[str, Any]) -> str:
    if not state.get("total"):
        return "it begins"
    if state.get("is_paused"):
        return f"{state['stage']}, waits for the answer"
    done, left = (
        f"{state['stage']}, {100 * state['done'] // state['total']} %",
        state.get("seconds_left"),
    )
    return done if left is None else f"{done}, {time_left(left)} left"


class TrainScreen(ListScreen[str | None]):
    """Shows lines of text, and returns what is chosen. choices: by id, in words."""

    DEFAULT_CSS: ClassVar[str] = """
    TrainScreen #plan { height: auto; max-height: 85%; padding: 0 1 1 1; overflow-y: auto; }
    """

    def __init__(self, lines: Sequence[str], choices: Mapping[str, str]) -> None:
        super().__init__("A drafter of your own", "Enter choose · Esc back")
        self._text, self._choices = "\n".join(lines), choices

    def _parts(self) -> ComposeResult:
        yield Static(Content(printable(self._text)), id="plan")
        yield self._rows

    def on_mount(self) -> None:
        self._dialog.show_title("A drafter of your own")
        self._rows.show([more_row(name, "", words) for name, words in self._choices.items()])

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)
