"""Loading a model with its backend, its vocabulary alone, or a drafter made from its weights."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from backends.base import (
    CacheType,
    Context,
    DraftUnavailableError,
    Head,
    Model,
    ModelError,
    ModelInfo,
    UsageError,
    Vocabulary,
)
from backends.engines.backend_names import AUTO, LLAMACPP, MLX
from backends.engines.backend_selection import backend_for
from backends.engines.engine_import import importing_engine
from backends.engines.engine_resources import check_cache_type
from backends.files.head_folders.folder_drafter import drafter_in_folder


def load(
    path: Path,
    threads: int | None,
    gpu_layers: int | None,
    wanted: str = AUTO,
    experts: int | None = None,
    lock_bytes: int | None = None,
    cache_type: CacheType | None = None,
    beside: Model | None = None,
) -> Model:
    """Load a model; only the thread that loads it may run it.

    experts: active experts per token, None for the file's own number; llama.cpp only.
    lock_bytes: weights to lock in memory while the others stream from disk, None for a model that
    fits; llama.cpp on the processor only. beside: a loaded model of the same file that streams,
    whose held weights this one uses too.
    cache_type: of the KV cache, None for the engine's own; llama.cpp only.

    Raises:
        UsageError: the wanted backend cannot run such a model, or has no such option.
        ModelError: the model cannot be loaded.
    """
    backend = backend_for(path, wanted)
    if backend == MLX:
        if lock_bytes is not None:
            raise UsageError(
                f"{path.name} cannot stream from disk",
                "MLX holds all weights in memory",
                "Use its GGUF file with --backend llamacpp.",
            )
        check_cache_type(backend, cache_type)
        with importing_engine(backend):
            from backends import mlx
            from backends.mlx.mlx_device import raise_wired_limit
        raise_wired_limit()
        assert experts is None, "with MLX, drafters with fewer experts are derived"
        return mlx.load(path, gpu_layers=gpu_layers)
    with importing_engine(backend):
        from backends import llamacpp
    assert beside is None or isinstance(beside, llamacpp.LlamaModel)
    return llamacpp.load(
        path,
        threads=threads,
        gpu_layers=gpu_layers,
        experts=experts,
        lock_bytes=lock_bytes,
        cache_type=cache_type,
        beside=beside,
    )


def load_head(path: Path, target: Model, context: Context) -> Head:
    """Load a head that drafts for a loaded model, beside a context of it.

    path: the head's file or folder, or the model's own: that of a file needs no loading.

    Raises:
        DraftUnavailableError: the model's backend or this build cannot run it.
        ModelError: a file is damaged, or head and model do not belong together.
    """
    if target.info.backend == MLX:
        from backends.mlx.heads import mlx_head
        from backends.mlx.mlx_context import MlxContext
        from backends.mlx.mlx_model import MlxModel

        assert isinstance(target, MlxModel)
        assert isinstance(context, MlxContext)
        return mlx_head.load_head(path, target, context)
    from backends.llamacpp import LlamaContext, LlamaModel
    from backends.llamacpp.heads import llama_head

    assert isinstance(target, LlamaModel)
    assert isinstance(context, LlamaContext)
    return llama_head.load_head(path, target, context)


def own_head(target: Model, context: Context) -> Head | None:
    """The head in a model's own file or folder, beside a context; None if none can be run."""
    try:
        if not _has_own_head(target):
            return None
        return load_head(target.info.path, target, context)
    except (DraftUnavailableError, ModelError):
        return None  # told where it is asked for


def _has_own_head(target: Model) -> bool:
    """Whether a model brings next-token layers.

    Raises:
        ModelError: its folder cannot be read.
    """
    if target.info.backend == MLX:
        path = target.info.path
        found = drafter_in_folder(path) if path.is_dir() else None
        return found is not None and not found.is_alone
    from backends.llamacpp import LlamaModel

    assert isinstance(target, LlamaModel)
    return target.has_own_head


def vocabulary(path: Path) -> AbstractContextManager[Vocabulary]:
    """Vocabulary of a model whose weights stay on disk, valid within the block.

    Raises:
        ModelError: the model cannot be read, or its engine is not installed.
    """
    if path.is_dir():
        backend_for(path, MLX)
        with importing_engine(MLX):
            from backends.mlx.mlx_vocabulary import vocabulary as vocabulary_of_folder
        return vocabulary_of_folder(path)
    with importing_engine(LLAMACPP):
        from backends.llamacpp.llama_vocabulary import vocabulary as vocabulary_of_file
    return vocabulary_of_file(path)


def hold(model: Model, lock_bytes: int) -> None:
    """Lock so many bytes of a streamed model's weights from now on. Not during a pass."""
    from backends.llamacpp.llama_model import LlamaModel

    assert isinstance(model, LlamaModel)
    model.hold(lock_bytes)


def derives(info: ModelInfo) -> bool:
    """Whether a model's backend derives drafters in memory; otherwise they are files."""
    return info.backend == MLX


def derive(
    target: Model,
    variant: str,
    bits: int | None,
    skipped: Sequence[int],
    experts: int | None = None,
    *,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Model:
    """Make a drafter in memory from a loaded model that derives.

    variant: its name. bits: per weight, None for the target's own. skipped: layers to skip.
    experts: active experts per token, None for the target's number. progress: called with the
    number of matrices done and in total.

    Raises:
        DraftUnavailableError: it cannot be made from this model.
    """
    from backends.mlx.mlx_model import MlxModel
    from backends.mlx.self_draft.derived_model import derive as derive_in_mlx

    assert isinstance(target, MlxModel)
    return derive_in_mlx(target, variant, bits, skipped, experts, progress=progress)
