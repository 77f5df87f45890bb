"""A drafter of one's own, trained in the background by `specchat models train` in a child process.

The command measures, predicts, keeps its progress on disk and waits while an answer is written. It
is stopped when the app ends; the same command then goes on.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

from filelock import FileLock, Timeout
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
        return words_of(_newest(self._states, self._model)[1])

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
            lines = [line.removeprefix("specchat: ") for line in lines]
            why = lines[-2:] or ["nothing was told"]
            raise SpecchatError("no drafter was trained", *why) from error


def newest_run(states: Path, model: Path) -> tuple[Mapping[str, Any], bool]:
    """The state of a model's newest run, empty without one, and whether a process works on it."""
    file, state = _newest(states, model)
    return state, file is not None and _is_held(file)


def _newest(states: Path, model: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """The file that a model's runs wrote last, and what it says."""
    with suppress(OSError):  # one that ends meanwhile
        for file in sorted(states.glob("*/state.json"), key=_written, reverse=True):
            state = read_object(file)
            if state.get("target") == str(model):
                return file, state
    return None, {}


def _written(file: Path) -> float:
    return file.stat().st_mtime


def _is_held(state: Path) -> bool:
    """Whether a process works on a run, which locks a file of its folder's name (app.training)."""
    with suppress(Timeout, OSError), FileLock(f"{state.parent}.lock", blocking=False):
        return False
    return True


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
        self.dismiss(event.option.id or None)
