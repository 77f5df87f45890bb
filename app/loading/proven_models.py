"""Loads models, each only after it ran in a child process without a crash."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from app.loading.fitting_layers import fitting_layers
from app.loading.proofs import Proofs, proof_key
from app.paths import Paths
from backends.base import Model, Vocabulary
from backends.engines.backend_names import AUTO, LLAMACPP, MLX
from backends.engines.backend_selection import backend_for
from backends.engines.model_loading import load, vocabulary
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
        if self._prove(Trial(path, backend, threads, gpu_layers, experts, streams=streams)):
            self.notify(f"loading {path.name}")
        return load(path, threads, gpu_layers, backend, experts, lock_bytes, beside)

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
        status = f"checking {trial.path.name}"
        self.notify(status)
        with self.with_room(), closing(ProofProcess()) as process:
            process.prove(trial, stored_bytes(trial.path), lambda: self.notify(status))
        proofs.add(key)
        return True
