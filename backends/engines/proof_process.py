"""Child process that runs a model before this process does, so that only the child crashes.

Engines abort on some damaged files, in more ways than checks of the files can foresee.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

import psutil

from backends.base import CacheType, ModelError, OutOfMemoryError, SpecchatError, UsageError
from backends.engines.backend_selection import LLAMACPP, MLX
from backends.engines.engine_facts import expected_runner

_START_SECONDS = 60.0
"""Time limit for starting the interpreter and importing an engine on a busy machine."""

_SECONDS = {LLAMACPP: 15.0, MLX: 20.0}
"""Time limit, and more by size: milliseconds as a rule, but a busy machine fails no good model."""

_GPU_SECONDS = 60.0
"""A GPU driver may compile kernels first."""

_BYTES_PER_SECOND = {LLAMACPP: 10e6, MLX: 2.5e6}
"""Assumed speed, from which the time limit of a model follows; Esc and Ctrl-C end it earlier.

The bundled model of 98 MB takes 0.16 s in llama.cpp. MLX without a GPU takes seconds for a token,
and loads the code of an architecture first.
"""

_POLL_SECONDS = 0.1
_MOST_BYTES = 2 << 30
"""Memory allowed beyond three times the files: weights may be mapped, repacked and on a GPU."""

_LARGE_BYTES = 2 << 30
"""Files from which on no weights are copied in the child: to a GPU that takes seconds, and to
rearrange them for the processor 0.5 s a gigabyte. The kernels that run are the same."""

_LAST_BYTES = 4096
_MOST_CHARACTERS = 200
_NAMED: dict[str, type[SpecchatError]] = {
    "OutOfMemoryError": OutOfMemoryError,
    "ContextTooLargeError": OutOfMemoryError,
    "UsageError": UsageError,
}
_REMEDY = "Download or copy it again, or choose another model."


@dataclass(frozen=True, slots=True)
class CrashCheck:
    """A model to run with its options, as for engines.model_loading.load.

    vocabulary_only: the weights stay on disk. streams: they are read from disk in every pass.
    head: drafts for the model too; None for the one in its own file, if it has one.
    """

    path: Path
    backend: str
    threads: int | None = None
    gpu_layers: int | None = None
    experts: int | None = None
    vocabulary_only: bool = False
    streams: bool = False
    cache_type: CacheType | None = None
    head: Path | None = None

    @property
    def proven(self) -> Path:
        """The file that is in question."""
        return self.head or self.path


class ProofProcess:
    """Runs models in a child, which ends with the first that crashes it."""

    def __init__(self) -> None:
        """Start an interpreter with the module path of this one.

        Raises:
            ModelError: no process can be started.
        """
        root = str(Path(__file__).resolve().parents[2])
        paths = filter(None, [root, os.environ.get("PYTHONPATH")])
        # Otherwise llama.cpp starts a debugger to print a backtrace.
        environment = {"PYTHONPATH": os.pathsep.join(paths), "GGML_NO_BACKTRACE": "1"}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "backends.engines.proof_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=os.environ | environment,
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
        except OSError as error:
            self._log.close()
            why = f"no process can be started: {error.strerror or error}"
            raise ModelError("models cannot be checked here", why) from error
        self._answers: SimpleQueue[bytes] = SimpleQueue()
        Thread(target=self._receive, name="proof", daemon=True).start()

    def _receive(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._answers.put(line)
        self._answers.put(b"")

    def prove(
        self, trial: CrashCheck, file_bytes: int, tick: Callable[[], None] = lambda: None
    ) -> None:
        """Load a model and generate a token in the child.

        tick: called ten times a second; an exception from it ends the child and is passed on.

        Raises:
            ModelError: the model cannot be run, or the child crashed or hung and is closed.
            UsageError: the model cannot be run with these options.
        """
        on_gpu = expected_runner(trial.backend, 1, trial.gpu_layers).device.startswith("GPU")
        seconds = _GPU_SECONDS if on_gpu else _SECONDS[trial.backend]
        seconds += file_bytes / _BYTES_PER_SECOND[trial.backend]
        most_bytes = 3 * file_bytes + _MOST_BYTES
        limits = {"seconds": seconds, "blank": file_bytes >= _LARGE_BYTES}
        try:
            self._send(asdict(trial) | limits)
            self._line(trial, _START_SECONDS, most_bytes, tick)  # the engine has started
            answer = _checked(self._line(trial, seconds, most_bytes, tick), trial)
        except BaseException:
            self.close()
            raise
        if answer:
            error = _NAMED.get(answer["kind"], ModelError)
            raise error(answer["what"], answer["why"], answer["remedy"])

    def _line(
        self, trial: CrashCheck, seconds: float, most_bytes: int, tick: Callable[[], None]
    ) -> bytes:
        ends = time.monotonic() + seconds
        while True:
            try:
                line = self._answers.get(timeout=_POLL_SECONDS)
            except Empty:
                tick()
                if time.monotonic() > ends:
                    raise _stops(trial, f"it did not answer in {seconds:.0f} s") from None
                if self._held_bytes() > most_bytes:
                    raise _stops(trial, f"it took over {most_bytes / 1e9:.1f} GB") from None
                continue
            if not line:
                raise _stops(trial, self._last_words())
            return line

    def _send(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request, default=str).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:  # it has ended, as reading its answer will show
            return

    def _held_bytes(self) -> int:
        try:
            return psutil.Process(self._process.pid).memory_info().rss
        except psutil.Error:
            return 0

    def _last_words(self) -> str:
        """How the process ended, with the last line the engine logged."""
        code = self._process.wait()
        end = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(end - _LAST_BYTES, 0))
        text = self._log.read().decode("utf-8", errors="replace").strip()
        line = text.splitlines()[-1] if text else ""
        file, _, failed = line.partition(": ")
        line = failed if file.rpartition(":")[2].isdecimal() else line
        how = f"its process ended with {_named(code)}"
        return f"{how}: {line[:_MOST_CHARACTERS]}" if line else how

    def close(self) -> None:
        """Kill the process and close its pipes. Safe to call again."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # unsent input
            self._process.stdin.close()
        self._log.close()


def _checked(line: bytes, trial: CrashCheck) -> dict[str, str]:
    """Parsed answer; a child with corrupted memory may have garbled it."""
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        answer = json.loads(line)
        if answer == {} or {"kind", "what", "why", "remedy"} <= answer.keys():
            return {name: str(value) for name, value in answer.items()}
    raise _stops(trial, "its answer makes no sense")


def _stops(trial: CrashCheck, why: str) -> ModelError:
    return ModelError(f"{trial.proven} stops the engine", why, _REMEDY)


def _named(code: int) -> str:
    """Exit status in words, by the name of the signal if there was one."""
    try:
        return signal.Signals(-code).name if code < 0 else f"status {code & 0xFFFFFFFF:#x}"
    except ValueError:
        return f"signal {-code}"
