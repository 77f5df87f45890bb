"""A drafter of one's own, trained in the background by `specchat models train` in a child process.

The command measures, predicts, keeps its progress on disk and waits while an answer is written. It
is stopped when the app ends; the same command then goes on.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList, Static

from app.loading.select import lasting_name
from app.paths import Paths
from app.printable import printable
from app.training.run import Begun, unfinished
from app.tui.lists import ListScreen, more_row
from backends.base import DownloadStoppedError, SpecchatError
from models.reference import Reference

COMMAND = (sys.executable, "-P", "-m", "specchat", "models", "train")


class TrainingJob:
    """The command for a model, as a job of Downloads; it only plans with --dry-run."""

    def __init__(self, paths: Paths, model: Reference, options: Sequence[str]) -> None:
        """Raises OSError: no process can be started."""
        self._paths, self._model, self._is_stopped = paths, model.path, False
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
        run = newest_run(self._paths, self._model)
        return run.words if run else "it begins"

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


def newest_run(paths: Paths, model: Path) -> Begun | None:
    """The run of a model that was last worked on."""
    return next((run for run in unfinished(paths) if run.target == model), None)


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
        self._rows.show([more_row(name, "", words) for name, words in self._choices.items()])

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id or None)
