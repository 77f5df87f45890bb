"""A head loaded by llama.cpp: layers that draft for one model from its hidden states."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from llama_cpp import llama_cpp as api

from backends.base import Context, DraftUnavailableError, ModelInfo, Rollback, Tokenizer
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind, drafter_in
from backends.files.gguf_header import GgufHeader, parts, read_header
from backends.llamacpp import library
from backends.llamacpp.head_checks.head_check import checked_head
from backends.llamacpp.heads.assistant_head import open_assistant
from backends.llamacpp.heads.dflash_head import open_dflash
from backends.llamacpp.heads.eagle3_head import open_eagle3
from backends.llamacpp.heads.head_opening import HeadSource
from backends.llamacpp.heads.prediction_head import open_prediction
from backends.llamacpp.llama_context import LlamaContext
from backends.llamacpp.llama_model import LlamaModel
from backends.llamacpp.loading.load_checks import load_error


class OpenHead(Context, Protocol):
    """An open context of a head."""

    def on_close(self, told: Callable[[], None]) -> None:
        """Call this when the context is closed."""
        ...


Open = Callable[[HeadSource, LlamaContext, ExitStack], OpenHead]
"""Opens a context of a head, which takes over what frees it, or leaves it to the caller."""

_OPEN: dict[TrainedKind, Open] = {
    TrainedKind.NEXT_TOKEN_LAYERS: open_prediction,
    TrainedKind.EAGLE3: open_eagle3,
    TrainedKind.ASSISTANT: open_assistant,
    TrainedKind.DFLASH: open_dflash,
    TrainedKind.DSPARK: open_dflash,
}


def load_head(path: Path, target: LlamaModel, context: LlamaContext) -> "LlamaHead":
    """Load a head for a model; its own layers need no loading.

    path: the head's file, or the model's own. context: of the model, which the head reads.

    Raises:
        ModelError: a file is damaged, or head and model do not belong together.
        DraftUnavailableError: the model was loaded without its own layers.
    """
    header = checked_head(path, target.info.path)
    tensors = [tensor for part in parts(path) for tensor in read_header(part).tensors]
    drafter = drafter_in(header, tensors)
    assert drafter is not None, "it was checked"
    if path == target.info.path:
        if not target.has_own_head:  # the engine would abort
            what = f"the next-token layers of {target.info.name} cannot draft"
            raise DraftUnavailableError(what, "they are left out of a model that streams")
        return LlamaHead(path, header, drafter, target, context)
    parameters = api.llama_model_default_params()
    parameters.load_mtp = True
    parameters.use_extra_bufts = library.repacking_is_exact()
    parameters.n_gpu_layers = -1 if target.is_offloaded else 0
    library.forget_log()
    pointer = api.llama_model_load_from_file(os.fsencode(path), parameters)
    if pointer is None:
        raise load_error(path, header)
    return LlamaHead(path, header, drafter, target, context, pointer)


class LlamaHead:
    """Loaded layers of a head, and their open contexts. To be closed before its model."""

    shortage = ""

    def __init__(
        self,
        path: Path,
        header: GgufHeader,
        drafter: TrainedDrafter,
        target: LlamaModel,
        context: LlamaContext,
        pointer: api.llama_model_p | None = None,
    ) -> None:
        """Take over loaded weights; pointer: None for those of the target."""
        self._pointer = pointer
        self._target = target
        self._context = context
        self._contexts: set[OpenHead] = set()
        self._header = header
        self._kind = drafter.kind
        self.tokenizer: Tokenizer = target.tokenizer
        self.info = _describe(path, header, drafter, target.info, pointer)

    def open(self, n_ctx: int, *, drafts: bool = True) -> Context:
        """A context beside that of the model, and of its size: n_ctx is the least."""
        assert drafts, "a head does nothing else"
        assert n_ctx <= self._context.n_ctx
        return self.open_beside(self._context)

    def open_beside(self, context: Context) -> Context:
        """A context that drafts for another one of the model.

        Raises:
            OutOfMemoryError: its cache does not fit in free memory.
        """
        assert isinstance(context, LlamaContext)
        pointer = self._pointer or self._target.pointer
        info = self.info
        source = HeadSource(
            pointer,
            self._header,
            info.n_layers,
            info.n_vocab,
            info.threads,
            self._target.info.cache_type,
        )
        with ExitStack() as resources:
            opened = _OPEN[self._kind](source, context, resources)
        self._contexts.add(opened)
        opened.on_close(lambda: self._contexts.discard(opened))
        context.close_with(opened)
        return opened

    def close(self) -> None:
        """Close its contexts and free the weights, if they are its own."""
        for context in list(self._contexts):
            context.close()
        if self._pointer is not None:
            api.llama_model_free(self._pointer)
            self._pointer = None


def _describe(
    path: Path,
    header: GgufHeader,
    drafter: TrainedDrafter,
    target: ModelInfo,
    pointer: api.llama_model_p | None,
) -> ModelInfo:
    return ModelInfo(
        path=path,
        name=path.stem,
        architecture=header.architecture,
        quantization="" if pointer is None else "head",
        parameters=api.llama_model_n_params(pointer) if pointer else 0,
        weight_bytes=api.llama_model_size(pointer) if pointer else 0,
        bytes_read_per_token=drafter.draw_bytes,
        n_vocab=target.n_vocab,
        n_layers=drafter.layers,
        context_limit=target.context_limit,
        rollback=Rollback.ANY,
        backend=target.backend,
        engine=target.engine,
        device=target.device,
        threads=target.threads,
        variant=drafter.kind.variant,
    )
