"""Child process that runs a model before this process does, so that only the child crashes.

Engines abort on some damaged files, in more ways than checks of the files can foresee.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from backends.base import CacheType, ModelError, OutOfMemoryError, SpecchatError, UsageError
from backends.base.errors import DeviceLostError
from backends.base.watched_process import StoppedError, WatchedProcess
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

_WORKER = "backends.engines.proof_worker"
_MOST_BYTES = 2 << 30
"""Memory allowed beyond three times the files: weights may be mapped, repacked and on a GPU."""

_LARGE_BYTES = 1 << 29
"""Files from which on no weights are copied in the child: to a GPU that takes seconds, and to
rearrange them for the processor 0.2 to 0.5 s a gigabyte. The kernels that run are the same."""

_NAMED: dict[str, type[SpecchatError]] = {
    "DeviceLostError": DeviceLostError,
    "OutOfMemoryError": OutOfMemoryError,
    "ContextTooLargeError": OutOfMemoryError,
    "UsageError": UsageError,
}
_REMEDY = "Download or copy it again, or choose another model."


@dataclass(frozen=True, slots=True)
class CrashCheck:
    """A model to run with its options, as for engines.model_loading.load.

    vocabulary_only: the weights stay on disk. streams: they are read from disk in every pass.
    head: drafts for the model too; None for the one in its own file, if it has one. projector: for
    images, of which one is read. embeds: texts become vectors, and none is written.
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
    projector: Path | None = None
    embeds: bool = False

    @property
    def proven(self) -> Path:
        """The file that is in question."""
        return self.projector or self.head or self.path


class ProofProcess:
    """Runs models in a child, which ends with the first that crashes it."""

    def __init__(self) -> None:
        """Start the child. Raises ModelError: no process can be started."""
        try:
            # Otherwise llama.cpp starts a debugger to print a backtrace.
            self._process = WatchedProcess(_WORKER, {"GGML_NO_BACKTRACE": "1"})
        except OSError as error:
            why = f"no process can be started: {error.strerror or error}"
            raise ModelError("models cannot be checked here", why) from error

    def prove(
        self, trial: CrashCheck, file_bytes: int, tick: Callable[[], None] = lambda: None
    ) -> None:
        """Load a model and generate a token in the child.

        tick: called ten times a second; an exception from it ends the child and is passed on.

        Raises:
            DeviceLostError: the child crashed or hung on a GPU, and is closed.
            ModelError: the model cannot be run, or the child crashed or hung and is closed.
            UsageError: the model cannot be run with these options.
        """
        on_gpu = expected_runner(trial.backend, 1, trial.gpu_layers).device.startswith("GPU")
        seconds = _GPU_SECONDS if on_gpu else _SECONDS[trial.backend]
        seconds += file_bytes / _BYTES_PER_SECOND[trial.backend]
        most_bytes = 3 * file_bytes + _MOST_BYTES
        limits = {"seconds": seconds, "blank": file_bytes >= _LARGE_BYTES}
        try:
            self._process.send(asdict(trial) | limits)
            self._process.line(_START_SECONDS, most_bytes, tick)  # the engine has started
            answer = _checked(self._process.line(seconds, most_bytes, tick), trial)
        except StoppedError as error:
            self.close()
            stops = _stops(trial, str(error))
            if on_gpu and trial.backend == LLAMACPP:  # its fault, or the file's
                raise DeviceLostError(f"{stops.what} on the GPU", stops.why) from None
            raise stops from None
        except BaseException:
            self.close()
            raise
        if answer:
            error = _NAMED.get(answer["kind"], ModelError)
            raise error(answer["what"], answer["why"], answer["remedy"])

    def close(self) -> None:
        """Kill the process and close its pipes. Safe to call again."""
        self._process.close()


def _checked(line: bytes, trial: CrashCheck) -> dict[str, str]:
    """Parsed answer; a child with corrupted memory may have garbled it."""
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        answer = json.loads(line)
        if answer == {} or {"kind", "what", "why", "remedy"} <= answer.keys():
            return {name: str(value) for name, value in answer.items()}
    raise _stops(trial, "its answer makes no sense")


def _stops(trial: CrashCheck, why: str) -> ModelError:
    return ModelError(f"{trial.proven} stops the engine", why, _REMEDY)
