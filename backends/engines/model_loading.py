"""Loads a model, its vocabulary alone, a head, or a drafter made from its weights."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from backends.base import (
    CacheType,
    Context,
    DraftUnavailableError,
    Head,
    Model,
    ModelError,
    ModelInfo,
    SpecchatError,
    UsageError,
    Vocabulary,
)
from backends.base.baseline_engine import BaselineEngine
from backends.engines.backend_selection import AUTO, LLAMACPP, MLX, backend_for, importing_engine
from backends.engines.engine_facts import check_cache_type
from backends.files.gguf_drafter import TrainedDrafter
from backends.files.head_folders.head_folder import drafter_in_folder

if TYPE_CHECKING:
    from backends.llamacpp.embedding import Embedder
    from backends.llamacpp.rpc import Peers


class LoadOptions(TypedDict, total=False):
    """What llama.cpp's load takes, as told there; of MLX nothing but the usual may be asked."""

    experts: int | None
    lock_bytes: int | None
    cache_type: CacheType | None
    beside: Model | None
    peers: "Peers | None"


def load(
    path: Path,
    threads: int | None,
    gpu_layers: int | None,
    wanted: str = AUTO,
    *,
    blank: bool = False,
    projector: Path | SpecchatError | None = None,
    **options: Unpack[LoadOptions],
) -> Model:
    """Load a model; only the thread that loads it may run it.

    blank, projector: as of llama.cpp's load; MLX ignores them.

    Raises:
        UsageError: the wanted backend cannot run such a model, or has no such option.
        ModelError: the model cannot be loaded.
    """
    backend = backend_for(path, wanted)
    if backend == MLX:
        if options.get("lock_bytes") is not None:
            raise UsageError(
                f"{path.name} cannot stream from disk",
                "MLX holds all weights in memory",
                "Use its GGUF file with --backend llamacpp.",
            )
        check_cache_type(backend, options.get("cache_type"))
        with importing_engine(backend):
            from backends import mlx
            from backends.mlx.device import raise_wired_limit
        raise_wired_limit()
        experts = options.get("experts")
        assert experts is None, "with MLX, drafters with fewer experts are derived"
        return mlx.load(path, gpu_layers=gpu_layers)
    with importing_engine(backend):
        from backends import llamacpp
    return llamacpp.load(
        path, threads=threads, gpu_layers=gpu_layers, blank=blank, projector=projector, **options
    )


def open_peers(addresses: Sequence[tuple[str, int]]) -> "Peers":
    """Connect to other machines. Raises as Peers does, or ModelError without the engine."""
    with importing_engine(LLAMACPP):
        from backends.llamacpp.rpc import Peers
    return Peers(addresses)


def open_embedder(model: Model, most_tokens: int) -> "Embedder":
    """Open a context of a model that embeds texts of at most so many tokens. Raises as Embedder."""
    from backends.llamacpp.embedding import Embedder, LlamaModel

    assert isinstance(model, LlamaModel)
    return Embedder(model, most_tokens)


def load_head(path: Path, target: Model, context: Context) -> Head:
    """Load a head that drafts for a loaded model, beside a context of it.

    path: the head's file or folder, or the model's own: that of a file needs no loading.

    Raises:
        DraftUnavailableError: the model's backend or this build cannot run it.
        ModelError: a file is damaged, or head and model do not belong together.
    """
    if target.info.backend == MLX:
        from backends.mlx.context import MlxContext
        from backends.mlx.heads import head as mlx_head
        from backends.mlx.model import MlxModel

        assert isinstance(target, MlxModel)
        assert isinstance(context, MlxContext)
        return mlx_head.load_head(path, target, context)
    from backends.llamacpp import LlamaContext, LlamaModel
    from backends.llamacpp.heads import head as llama_head

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
    """Whether a model brings next-token layers. Raises ModelError: its folder cannot be read."""
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
            from backends.mlx.model import vocabulary as vocabulary_of_folder
        return vocabulary_of_folder(path)
    with importing_engine(LLAMACPP):
        from backends.llamacpp.loading import vocabulary as vocabulary_of_file
    return vocabulary_of_file(path)


def hold(model: Model, lock_bytes: int) -> None:
    """Lock so many bytes of a streamed model's weights from now on. Not during a pass."""
    from backends.llamacpp.model import LlamaModel

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
        DraftUnavailableError: its weights have no more bits than that, or its architecture does not
            support the change.
    """
    from backends.mlx.model import MlxModel
    from backends.mlx.self_draft import derive as derive_in_mlx

    assert isinstance(target, MlxModel)
    return derive_in_mlx(target, variant, bits, skipped, experts, progress=progress)


_FILE_FOR_MLX = "MLX reads heads in folders of safetensors, and this is a file"


def refuse_unread_head(path: Path, backend: str = LLAMACPP) -> None:
    """Refuse a head in a form that the backend of its model does not read.

    Raises:
        ModelError: it is in such a form, with what to do about it.
    """
    if backend == MLX:
        if path.is_file():
            remedy = "Use the model's GGUF file with --backend llamacpp, or the head's folder."
            raise ModelError(f"{path.name} cannot draft", _FILE_FOR_MLX, remedy)
        return
    with importing_engine(LLAMACPP):
        from backends.llamacpp.head_checks import refuse_safetensors
    refuse_safetensors(path)


def head_refusal(drafter: TrainedDrafter, architecture: str, backend: str = LLAMACPP) -> str:
    """Why a head cannot draft for a model of an architecture, in words; empty if it may.

    backend: that of the model. What MLX's layers of a model give to a head is found out with it.
    """
    if backend == MLX:
        return ""
    try:
        with importing_engine(LLAMACPP):
            from backends.llamacpp.head_checks import unsupported
    except ModelError as error:
        return error.summary
    return unsupported(drafter, architecture)


_ALL = -1
"""All layers, as llama.cpp counts them."""


def baseline_engines(
    model: Model, n_ctx: int, drafter: Model | None, *, plain: bool = False
) -> Iterator[BaselineEngine]:
    """Baselines for a loaded model, the engine's own speculative decoding included.

    drafter: a loaded model with the same vocabulary, if there is one. plain: whether also those
    that load the weights once more to decode without drafts.

    Raises:
        ModelError: a baseline cannot load the model.
    """
    info = model.info
    if info.host:
        return
    if info.backend == MLX:
        with importing_engine(MLX):
            from backends.mlx.model import mlx_baselines
        yield from mlx_baselines(model, drafter)
        return
    if info.device.startswith("RPC"):
        return  # they know no other machine
    with importing_engine(LLAMACPP):
        from backends.llamacpp.loading import LlamaBaseline
    is_on_gpu, cache_type = info.device.startswith("GPU"), info.cache_type or CacheType.F16
    layers = (info.gpu_layers if info.gpu_layers is not None else _ALL) if is_on_gpu else 0
    for drafts in (True, False)[: 1 + plain]:
        yield LlamaBaseline(info.path, n_ctx, info.threads, layers, cache_type, drafts=drafts)
