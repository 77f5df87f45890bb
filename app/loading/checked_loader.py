"""Loads models, each only after it ran in a child process without a crash."""

import hashlib
import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack

from app.loading.placement import SMALLEST_CONTEXT, GpuSplit, fullest_split
from app.loading.session_options import DEFAULT_CONTEXT
from app.paths import Paths
from backends.base import Context, Head, Model, ModelError, SpecchatError, UsageError, Vocabulary
from backends.engines.backend_selection import AUTO, LLAMACPP, MLX, backend_for
from backends.engines.engine_facts import expected_runner, quantized, separate_gpus
from backends.engines.model_loading import LoadOptions, load, load_head, vocabulary
from backends.engines.proof_process import CrashCheck, ProofProcess
from backends.hardware import gpu_loss
from backends.hardware.host import available_memory
from backends.streaming.weight_plan import weight_layout
from models.bounded_files import NameList
from models.metadata.identity import model_files, stamp, stored_bytes
from models.metadata.memory_bill import facts_of_target


def proof_key(trial: CrashCheck) -> str:
    """Identity of a model's files and of the engine, device and options that run them.

    Raises:
        ModelError: a file is missing, or the engine cannot be started.
    """
    try:
        others = [file for path in (trial.head, trial.projector) if path for file in _files(path)]
        stamps = [stamp(file) for file in (*_files(trial.path), *others)]
    except OSError as error:
        raise ModelError(f"cannot read {trial.proven}", error.strerror or str(error)) from error
    # How many layers fit changes with what others take of a GPU; one proof holds for all numbers.
    runner = expected_runner(trial.backend, trial.threads, trial.gpu_layers and 1)
    options = (trial.experts, trial.vocabulary_only, trial.streams, quantized(trial.cache_type))
    options += ("embeds",) * trial.embeds
    identity = "\n".join(map(str, (*stamps, runner.engine, runner.device, *options)))
    return hashlib.sha256(os.fsencode(identity)).hexdigest()[:32]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return model_files(path)
    return sorted(file for file in path.iterdir() if file.is_file())


def split_here(path: Path, backend: str) -> GpuSplit | None:
    """Division of a model between GPUs and processor; None without GPUs whose memory is known.

    All layers go to GPUs if they fit with the smallest context; otherwise as many as fit with the
    usual one.

    Raises:
        ModelError: the file is missing or damaged, or the engine cannot be started.
    """
    gpus = separate_gpus(backend, None)
    if not gpus:
        return None
    facts, layout = facts_of_target(path, backend), weight_layout(path)
    limit = facts.context_limit or DEFAULT_CONTEXT
    smallest, usual = (
        fullest_split(layout, facts, min(n_ctx, limit), [gpu.free_bytes or 0 for gpu in gpus])
        for n_ctx in (SMALLEST_CONTEXT, DEFAULT_CONTEXT)
    )
    return smallest if smallest.is_whole else usual


@dataclass(frozen=True, slots=True)
class CheckedLoader:
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
        *,
        projector: Path | None = None,
        **options: Unpack[LoadOptions],
    ) -> Model:
        """Load a model with the backend for it, as model_loading.load does.

        gpu_layers: None for all that fit on the GPUs. projector: for images; the model is loaded
        without one that cannot be run. peers: other machines for a part of its layers; a child
        runs it without them, on the processor.

        Raises:
            UsageError: the wanted backend cannot run the model, or lacks an option.
            ModelError: the model cannot be loaded, or crashed or hung in the child process.
        """
        backend = backend_for(path, wanted)
        if backend == LLAMACPP and gpu_loss.why():  # a child would use it
            gpu_layers = 0
        streams = options.get("lock_bytes") is not None or options.get("beside") is not None
        peers = options.get("peers")
        if gpu_layers is None and not streams and peers is None:
            split = split_here(path, backend)
            gpu_layers = None if split is None or split.is_whole else split.gpu_layers
        trial = CrashCheck(path, backend, threads, gpu_layers, options.get("experts"))
        trial = replace(trial, streams=streams, cache_type=options.get("cache_type"))
        if peers is not None:
            is_large = stored_bytes(path) > available_memory()
            trial = replace(trial, gpu_layers=0, streams=is_large)
        sight: Path | SpecchatError | None = projector
        try:
            is_new = self._prove(replace(trial, projector=projector))
        except (ModelError, UsageError) as error:
            if projector is None:
                raise
            sight, is_new = error, self._prove(trial)
        if is_new:
            self.notify(f"loading {path.name}")
        return load(path, threads, gpu_layers, backend, projector=sight, **options)

    def load_embedding_model(self, path: Path, threads: int) -> Model:
        """Load a GGUF file that embeds texts, on the processor. Raises as load does."""
        backend = backend_for(path, LLAMACPP)
        self._prove(CrashCheck(path, backend, threads, 0, embeds=True))
        return load(path, threads, 0, backend)

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
        trial = CrashCheck(info.path, info.backend, info.threads, layers, head=path)
        is_own = path == info.path  # which is run in the proof of the model
        # A child may take it twice: weights are mapped, and copied where they are rearranged.
        if not is_own and 2 * _bytes(trial) < available_memory():
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
        self._prove(CrashCheck(path, backend, vocabulary_only=True))
        with vocabulary(path) as loaded:
            yield loaded

    def _prove(self, trial: CrashCheck) -> bool:
        proofs, key = NameList(self.paths.proofs, "proven"), proof_key(trial)
        if key in proofs:
            return False
        status = f"checking {trial.proven.name}"
        self.notify(status)
        with self.with_room(), closing(ProofProcess()) as process:
            process.prove(trial, _bytes(trial), lambda: self.notify(status))
        proofs.add(key)
        return True


def _bytes(trial: CrashCheck) -> int:
    files = (trial.path, trial.head, trial.projector)
    return sum(stored_bytes(file) for file in files if file)
