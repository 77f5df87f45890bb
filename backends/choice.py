"""Chooses the backend that runs a model."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from backends.base import Model, ModelError, ModelInfo, UsageError, Vocabulary
from backends.device import available_memory

AUTO, LLAMACPP, MLX = "auto", "llamacpp", "mlx"


def require_backend(name: str) -> str:
    """The backend meant by auto or a name.

    Raises:
        UsageError: this version has no such backend.
    """
    if name in (AUTO, LLAMACPP):
        return LLAMACPP
    if name == MLX:
        raise UsageError("there is no MLX backend in this version", "", "Use --backend llamacpp.")
    raise UsageError(f"there is no backend {name!r}", "known: auto, llamacpp, mlx")


def free_memory(gpu_layers: int | None) -> int | None:
    """Bytes free for models where they will run; None on a GPU, which tells only when asked for.

    Raises:
        ModelError: the engine cannot be started.
    """
    with _loaded_engine():
        from backends.llamacpp import library
    on_gpu = gpu_layers != 0 and library.can_offload()
    return None if on_gpu else available_memory()


def load(path: Path, threads: int | None, gpu_layers: int | None) -> Model:
    """Load a model file with the backend for its kind.

    Raises:
        ModelError: the file cannot be loaded.
    """
    _require_file(path)
    with _loaded_engine():
        from backends import llamacpp
    return llamacpp.load(path, threads=threads, gpu_layers=gpu_layers)


def vocabulary(path: Path) -> AbstractContextManager[Vocabulary]:
    """The vocabulary of a model whose weights stay on disk, valid within the block.

    Raises:
        ModelError: the file cannot be read.
    """
    _require_file(path)
    with _loaded_engine():
        from backends.llamacpp import vocabulary as engine
    return engine.vocabulary(path)


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise ModelError(f"{path} is an MLX model", "this version runs GGUF files", "Give one.")


Answer = Callable[..., tuple[list[int], float]]
"""Continues a prompt: tokens, and seconds from the first to the last."""


def peer(info: ModelInfo, n_ctx: int) -> tuple[str, Answer, Callable[[], None]]:
    """What else runs a model here with drafting of its own: name, reply, close.

    Raises:
        ModelError: it cannot load the model.
    """
    with _loaded_engine():
        from backends.llamacpp.peer import NAME, Peer
    found = Peer(info.path, n_ctx, info.threads, on_gpu=info.device.startswith("GPU"))
    return NAME, found.reply, found.close


@contextmanager
def _loaded_engine() -> Iterator[None]:
    """Around importing an engine, which is left until a model is loaded."""
    try:
        yield
    except (ImportError, OSError, RuntimeError) as error:
        raise ModelError(
            "llama.cpp cannot be started here",
            str(error),
            "Build it again: uv sync --reinstall-package llama-cpp-python",
        ) from error


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What runs models here, and what would do it faster."""

    backend: str
    reason: str
    build: str
    can_offload: bool
    advice: str


def describe_engine() -> EngineFacts:
    """The engine that auto stands for on this machine."""
    with _loaded_engine():
        from backends.llamacpp import library
    offload = library.can_offload()
    return EngineFacts(
        LLAMACPP,
        "its build drives a GPU here" if offload else "its build runs on the processor alone",
        library.system_info().strip(" |\n"),
        offload,
        _advice(offload),
    )


def _advice(can_offload: bool) -> str:
    """The command that installs a faster build, as far as the machine shows what it has."""
    if can_offload:
        return "nothing: models run on the GPU"
    rebuild = "uv sync --reinstall-package llama-cpp-python"
    if sys.platform == "darwin":
        return f'with Apple Silicon: CMAKE_ARGS="-DGGML_METAL=on" {rebuild}'
    if shutil.which("nvidia-smi"):
        return f'with the CUDA toolkit installed: CMAKE_ARGS="-DGGML_CUDA=on" {rebuild}'
    if shutil.which("rocminfo"):
        return f'with ROCm installed: CMAKE_ARGS="-DGGML_HIP=on" {rebuild}'
    return "no GPU was found; smaller quantizations (Q4_0) decode faster than larger ones"


def derives(info: ModelInfo) -> bool:
    """Whether a model's backend makes drafters of it in memory, from its loaded weights."""
    return info.backend == MLX


def derive(target: Model, variant: str, bits: int | None, skipped: Sequence[int]) -> Model:
    """A drafter of a loaded model's own weights, see derives; variant: its name in words.

    Raises:
        DraftUnavailableError: it cannot be made of this model.
    """
    from backends.mlx.model import MlxModel
    from backends.mlx.own_draft import derive as of_loaded

    assert isinstance(target, MlxModel), "see derives"
    return of_loaded(target, variant, bits, skipped)
