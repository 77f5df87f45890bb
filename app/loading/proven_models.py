"""Loads models, each only after it ran in a child process without a crash."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from app.loading.fitting_layers import fitting_layers
from app.loading.proofs import Proofs, proof_key
from app.paths import Paths
from backends.base import CacheType, Context, Head, Model, Vocabulary
from backends.engines.backend_names import AUTO, LLAMACPP, MLX
from backends.engines.backend_selection import backend_for
from backends.engines.model_loading import load, load_head, vocabulary
from backends.hardware.host import available_memory
from backends.proof.proof_process import ProofProcess, Trial
from models.metadata.model_files import stored_bytes


@dataclass(frozen=True, slots=True)
class ProvenModels:
    """Loads models for the whole app.

    notify: receives a status line while a model is checked; an exception it raises stops the check.
    with_room: entered while a child process holds the model.
    """

    paths: Paths
    notify: Callable[[str], None]
    with_room: Callable[[], AbstractContextManager[None]] = nullcontext

    def load(
        self,
        path: Path,
        threads: int | None,
        gpu_layers: int | None,
        wanted: str = AUTO,
        experts: int | None = None,
        lock_bytes: int | None = None,
        cache_type: CacheType | None = None,
        beside: Model | None = None,
    ) -> Model:
        """Load a model with the backend for it, as model_loading.load does.

        gpu_layers: None for all that fit on the GPUs.

        Raises:
            UsageError: the wanted backend cannot run the model, or lacks an option.
            ModelError: the model cannot be loaded, or crashed or hung in the child process.
        """
        backend = backend_for(path, wanted)
        streams = lock_bytes is not None or beside is not None
        if gpu_layers is None and not streams:
            gpu_layers = fitting_layers(path, backend)
        trial = Trial(
            path, backend, threads, gpu_layers, experts, streams=streams, cache_type=cache_type
        )
        if self._prove(trial):
            self.notify(f"loading {path.name}")
        return load(path, threads, gpu_layers, backend, experts, lock_bytes, cache_type, beside)

    def load_head(self, path: Path, target: Model, context: Context) -> Head:
        """Load a head that drafts for a loaded model, as model_loading.load_head does.

        It runs in a child process before, beside its model on the processor. Where there is no
        memory for the model a second time, the comparison of their headers has to do.

        Raises:
            DraftUnavailableError: it cannot be run beside this model.
            ModelError: it cannot be loaded, or crashed or hung in the child process.
        """
        info = target.info
        layers = 0 if info.backend == LLAMACPP else None
        trial = Trial(info.path, info.backend, info.threads, layers, head=path)
        is_own = path == info.path  # which is run in the proof of the model
        if not is_own and _held_twice(trial) < available_memory():
            self._prove(trial)
        self.notify(f"loading {path.name}")
        return load_head(path, target, context)

    @contextmanager
    def vocabulary(self, path: Path) -> Generator[Vocabulary, None, None]:
        """Load only the vocabulary of a model; valid within the block.

        Raises:
            ModelError: the model cannot be read, or crashed or hung in the child process.
        """
        backend = backend_for(path, MLX if path.is_dir() else LLAMACPP)
        self._prove(Trial(path, backend, vocabulary_only=True))
        with vocabulary(path) as loaded:
            yield loaded

    def _prove(self, trial: Trial) -> bool:
        """Run a model in a child process; False if a proof is recorded."""
        proofs, key = Proofs(self.paths.proofs), proof_key(trial)
        if proofs.hold(key):
            return False
        status = f"checking {trial.proven.name}"
        self.notify(status)
        with self.with_room(), closing(ProofProcess()) as process:
            process.prove(trial, _bytes(trial), lambda: self.notify(status))
        proofs.add(key)
        return True


def _bytes(trial: Trial) -> int:
    """Bytes of all files of a trial."""
    return stored_bytes(trial.path) + (stored_bytes(trial.head) if trial.head else 0)


def _held_twice(trial: Trial) -> int:
    """Bytes that a child may take: weights are mapped, and copied where they are rearranged."""
    return 2 * _bytes(trial)
