"""Models loaded by MLX, their vocabularies without the weights, and mlx-lm as a baseline."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import glob
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.sample_utils import make_sampler
from mlx_lm.utils import get_total_parameters, load_model

from backends.base import (
    ContextTooLargeError,
    Model,
    ModelError,
    ModelInfo,
    Vocabulary,
    Warping,
    check_context,
)
from backends.base.baseline_engine import BaselineEngine
from backends.base.images import NO_MLX
from backends.files.mlx_folder import COPIES, MlxFolder
from backends.hardware.host import available_memory, physical_cores
from backends.mlx import device as mlx_device
from backends.mlx.caches import bytes_per_token, make_caches, rollback_of, rollback_refusal
from backends.mlx.context import MlxContext
from backends.mlx.folder_checks import checked_folder, loading
from backends.mlx.gguf import load_gguf
from backends.mlx.running_state import HeldStates
from backends.mlx.tokenizer import MlxTokenizer, read_engine, read_tokenizer

_CHUNK = 256
_UNKNOWN_CONTEXT = 4096


def load(path: Path, *, gpu_layers: int | None = None) -> "MlxModel":
    """Load an MLX folder or a llama GGUF file; only the loading thread may run it."""
    mlx_device.check_gpu_layers(gpu_layers)
    with loading(path):
        return _loaded(path)


def _loaded(path: Path) -> "MlxModel":
    if path.is_file():
        folder, module, tokenizer = load_gguf(path)
    else:
        folder, engine = checked_folder(path), read_engine(path)
        module, config = read_module(path)
        tokenizer = read_tokenizer(path, config, n_vocab_of(module), engine)
    return MlxModel(module, tokenizer, path, folder)


def read_module(path: Path, *, lazy: bool = False) -> tuple[nn.Module, dict[str, Any]]:
    """Read the model of a folder and its settings; lazy: only names and shapes.

    mlx-lm treats the path as a glob pattern: a path with magic characters is read through a link.
    """
    if not glob.has_magic(str(path)):
        return load_model(path, lazy=lazy)
    with TemporaryDirectory() as place:
        plain = Path(place) / "model"
        plain.symlink_to(path.absolute(), target_is_directory=True)
        return load_model(plain, lazy=lazy)


class MlxModel:
    shortage = ""

    def __init__(
        self, module: nn.Module, tokenizer: MlxTokenizer, path: Path, folder: MlxFolder
    ) -> None:
        self.module: nn.Module | None = module
        self.tokenizer = tokenizer
        self.folder = folder
        self._contexts: set[MlxContext] = set()
        caches = make_caches(module)
        module(mx.array([[0]]), cache=caches)  # mismatched parts fail here, by their shapes alone
        self._kv_bytes_per_token = bytes_per_token(caches)
        self._state_bytes = HeldStates(caches).nbytes
        weights = weights_of(module)
        read = [(name, array.shape, array.nbytes) for name, array in weights]
        self.info = ModelInfo(
            path=path,
            name=path.name,
            architecture=str(folder.config.get("model_type", "unknown")),
            quantization=_quantization(folder, weights),
            parameters=get_total_parameters(module),
            weight_bytes=sum(array.nbytes for _, array in weights),
            bytes_read_per_token=folder.read_per_token(read),
            n_vocab=tokenizer.n_vocab,
            n_layers=folder.count("num_hidden_layers"),
            context_limit=folder.count("max_position_embeddings") or _UNKNOWN_CONTEXT,
            rollback=rollback_of(caches),
            backend="mlx",
            engine=mlx_device.build(),
            device=mlx_device.device(),
            threads=physical_cores(),
            rollback_refusal=rollback_refusal(caches),
            active_experts=folder.active_experts,
            image_refusal=NO_MLX,
        )

    def open(self, n_ctx: int, *, drafts: bool = True, sequences: int = 1) -> MlxContext:  # noqa: ARG002
        assert self.module is not None, "the model is closed"
        info = self.info
        check_context(info.name, n_ctx, info.context_limit)
        per_token, free = self._kv_bytes_per_token, available_memory()
        states = (COPIES if drafts else 1) * self._state_bytes
        needed = n_ctx * per_token + states
        if needed > free:
            fitting = max(free - states, 0) // max(per_token, 1)
            raise ContextTooLargeError(n_ctx, needed, free, fitting)
        context = MlxContext(
            self.module,
            info,
            n_ctx=n_ctx,
            n_chunk=min(_CHUNK, n_ctx),
            kv_bytes_per_token=self._kv_bytes_per_token,
            state_bytes=self._state_bytes,
            drafts=drafts,
            on_close=self._contexts.discard,
        )
        self._contexts.add(context)
        return context

    def close(self) -> None:
        if self.module is None:
            return
        for context in list(self._contexts):
            context.close()
        self.module = None
        mx.clear_cache()


def n_vocab_of(module: nn.Module) -> int:
    """Number of logits of a position: rows of the embedding, which may exceed the tokenizer's."""
    return int(module(mx.array([[0]]), cache=make_caches(module)).shape[-1])


def weights_of(module: nn.Module) -> list[tuple[str, mx.array]]:
    return cast("list[tuple[str, mx.array]]", tree_flatten(module.parameters()))


def _quantization(folder: MlxFolder, weights: list[tuple[str, mx.array]]) -> str:
    settings = folder.config.get("quantization")
    if isinstance(settings, dict) and "bits" in settings:
        return f"{settings['bits']}-bit"
    largest = max((array for _, array in weights), key=lambda array: array.nbytes)
    return str(largest.dtype).removeprefix("mlx.core.")


@contextmanager
def vocabulary(path: Path) -> Generator[Vocabulary]:
    """Vocabulary of a folder, valid within the block."""
    checked_folder(path)
    with loading(path):
        module, config = read_module(path, lazy=True)
        tokenizer = read_tokenizer(path, config, n_vocab_of(module))
        rollback = rollback_of(make_caches(module))
    del module
    yield Vocabulary(tokenizer, rollback)


@dataclass(frozen=True)
class MlxBaseline(BaselineEngine):
    """A loaded model run by mlx-lm, with its settings and separate caches."""

    name: str
    module: nn.Module
    drafter: nn.Module | None = None

    def tokens(
        self, prompt: Sequence[int], warping: Warping, seed: int, max_tokens: int
    ) -> Iterable[int]:
        mx.random.seed(seed)
        sampler = make_sampler(
            warping.temperature, top_p=warping.top_p, min_p=warping.min_p, top_k=warping.top_k
        )
        steps = self._steps(mx.array(list(prompt)), sampler, max_tokens)
        return (int(step[0]) for step in steps)

    def _steps(self, prompt: mx.array, sampler: Any, max_tokens: int) -> Iterable[tuple[Any, ...]]:
        if self.drafter is None:
            return generate_step(prompt, self.module, max_tokens=max_tokens, sampler=sampler)
        return speculative_generate_step(
            prompt, self.module, self.drafter, max_tokens=max_tokens, sampler=sampler
        )


def mlx_baselines(model: Model, drafter: Model | None) -> list[MlxBaseline]:
    """Plain generation, and speculative if MLX runs a drafter of the same vocabulary.

    Raises:
        ModelError: the model is not run by MLX.
    """
    if not isinstance(model, MlxModel) or model.module is None:
        raise ModelError("mlx-lm cannot be compared", f"{model.info.name} is not run by it")
    baselines = [MlxBaseline("mlx-lm", model.module)]
    if isinstance(drafter, MlxModel) and drafter.module is not None:
        baselines.append(MlxBaseline("mlx-lm speculative", model.module, drafter.module))
    return baselines
