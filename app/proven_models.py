"""Loads models that a child process ran before: the one way to an engine for the whole app."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.paths import Paths
from app.proofs import Proofs, proof_key
from backends.base import Model, Vocabulary
from backends.engines.backend_names import AUTO, LLAMACPP, MLX
from backends.engines.backend_selection import backend_for
from backends.engines.model_loading import load, vocabulary
from backends.proof.proof_process import ProofProcess, Trial
from models.metadata.model_files import stored_bytes


@dataclass(frozen=True, slots=True)
class ProvenModels:
    """notify: gets a line while a model is proved; what it raises ends that."""

    paths: Paths
    notify: Callable[[str], None]

    def load(
        self,
        path: Path,
        threads: int | None,
        gpu_layers: int | None,
        wanted: str = AUTO,
        experts: int | None = None,
    ) -> Model:
        """Load a model with the backend for it, as model_loading.load does.

        Raises:
            UsageError: the wanted backend cannot run such a model, or has no such option.
            ModelError: it cannot be loaded, or it ended or stopped the child that tried it.
        """
        backend = backend_for(path, wanted)
        if self._prove(Trial(path, backend, threads, gpu_layers, experts)):
            self.notify(f"loading {path.name}")
        return load(path, threads, gpu_layers, backend, experts)

    @contextmanager
    def vocabulary(self, path: Path) -> Iterator[Vocabulary]:
        """The vocabulary of a model whose weights stay on disk, valid within the block.

        Raises:
            ModelError: the model cannot be read, or it ended or stopped the child that tried it.
        """
        backend = backend_for(path, MLX if path.is_dir() else LLAMACPP)
        self._prove(Trial(path, backend, vocabulary_only=True))
        with vocabulary(path) as found:
            yield found

    def _prove(self, trial: Trial) -> bool:
        """Have a model run in a child; False where it did before."""
        proofs, key = Proofs(self.paths.proofs), proof_key(trial)
        if proofs.hold(key):
            return False
        words = f"checking {trial.path.name}"
        self.notify(words)
        with closing(ProofProcess()) as process:
            process.prove(trial, stored_bytes(trial.path), lambda: self.notify(words))
        proofs.add(key)
        return True
