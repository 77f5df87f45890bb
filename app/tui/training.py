"""A drafter of one's own, trained in the background by `specchat models train` in a child process.

The command measures, predicts, keeps its progress on disk and waits while an answer is written. It
is stopped when the app ends; the same command then goes on.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList, Static

from app.loading.select import lasting_name
from app.printable import printable
from app.tui.downloads import time_left
from app.tui.screens.lists import ListScreen, more_row
from backends.base import DownloadStoppedError, SpecchatError
from models.bounded_files import read_object
from models.reference import Reference

COMMAND = (sys.executable, "-P", "-m", "specchat", "models", "train")

_FRESH_SECONDS = 10.0
"""Age of a state up to which its run may be under way: it is written each second."""


class TrainingJob:
    """The command for a model, as a job of Downloads; it only plans with --dry-run."""

    def __init__(self, states: Path, model: Reference, options: Sequence[str]) -> None:
        """states: the folder of runs. Raises OSError: no process can be started."""
        self._states, self._model, self._is_stopped = states, model.path, False
        self._is_plan = "--dry-run" in options
        self._output = b"", b""
        self._process = subprocess.Popen(
            [*COMMAND, lasting_name(model), "--json", *options],
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
        if self._is_plan:
            return "measuring, which takes a few minutes"
        return words_of(_newest(self._states, self._model)[0])

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


def unfinished(states: Path, model: Path) -> Mapping[str, Any]:
    """The state of a model's run that was stopped; empty if none was."""
    state, age = _newest(states, model)
    return state if age > _FRESH_SECONDS else {}


def _newest(states: Path, model: Path) -> tuple[Mapping[str, Any], float]:
    """What a model's runs wrote last, and its age in seconds; empty without one."""
    found = [(_age(file), read_object(file)) for file in states.glob("*/state.json")]
    for age, state in sorted(found, key=itemgetter(0)):
        if state.get("target") == str(model):
            return state, age
    return {}, 0.0


def _age(file: Path) -> float:
    with suppress(OSError):
        return time.time() - file.stat().st_mtime
    return math.inf


def options_of(state: Mapping[str, Any]) -> list[str]:
    """Those of the command that goes on with a run, or begins one without a state."""
    words = ["--anyway"]
    for name, value in state.get("order", {}).items():
        if name != "system" and value:  # which is of the settings
            option = "--from" if name == "base" else f"--{name}"
            words += [option] if value is True else [option, str(value)]
    return words


def words_of(state: Mapping[str, Any]) -> str:
    """Such as "train, 34 %, 50 min left"."""
    if not state.get("total"):
        return "it begins"
    if state.get("is_paused"):
        return f"{state['stage']}, waits for the answer"
    words = f"{state['stage']}, {100 * state['done'] // state['total']} %"
    left = state.get("seconds_left")
    return words if left is None else f"{words}, {time_left(left)} left"


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
