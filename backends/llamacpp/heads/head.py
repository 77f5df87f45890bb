"""A head loaded by llama.cpp: layers that draft for one model from its hidden states."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from llama_cpp import llama_cpp as api

from backends.base import Context, DraftUnavailableError
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind, drafter_in
from backends.files.gguf_header import GgufHeader, parts, read_header
from backends.heads.head import LoadedLayers, head_info
from backends.heads.hidden_states import Rows
from backends.llamacpp import library
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.head_checks import checked_head
from backends.llamacpp.heads.assistant import open_assistant
from backends.llamacpp.heads.blocks import open_dflash
from backends.llamacpp.heads.chain import ChainContext, Transform
from backends.llamacpp.heads.opening import Opening, add_layer_states
from backends.llamacpp.heads.rows import RowBatch, check, hidden, keep_hidden
from backends.llamacpp.loading import load_error
from backends.llamacpp.model import LlamaModel


def open_prediction(at: Opening) -> ChainContext:
    """A context of a model's next-token layers beside one of the model.

    Raises:
        OutOfMemoryError: its cache does not fit in free memory.
    """
    layers = at.drafter.layers
    most = at.branches if layers == 1 else 1
    pointer = at.context(predicts=True, most_branches=most)
    keep_hidden(pointer, only_outputs=True)
    states = at.final_states()
    return ChainContext(at, pointer, states, width=states.width, max_branches=most, layers=layers)


def open_eagle3(at: Opening) -> ChainContext:
    """A context of a head that reads three layers' inputs, beside one of its model.

    It runs a token at the token's own position, where the paper's code and llama.cpp's have the one
    before: positions are rotary, so that only their distances count.

    Raises:
        DraftUnavailableError: this build of llama.cpp does not export what the head needs.
        OutOfMemoryError: its cache does not fit in free memory.
    """
    width = at.header.integer("embedding_length")
    pointer = at.context(most_branches=at.branches)
    keep_hidden(pointer, only_outputs=True)
    layers, inputs = at.header.integers("target_layers"), at.header.integer("target_hidden_size")
    states = add_layer_states(at.target, layers, inputs, at.resources)
    return ChainContext(
        at,
        pointer,
        states,
        width=width,
        max_branches=at.branches,
        transform=_encoder(pointer, states.width, width, at.n_chunk),
        skips_first=True,
        selects_rows=False,
    )


def _encoder(pointer: api.llama_context_p, inputs: int, width: int, most: int) -> Transform:
    """Fuses the layers' inputs of up to most tokens into one row each (the paper's g)."""
    memory = cast("api.llama_memory_t", api.llama_get_memory(pointer))
    batch = RowBatch(most, inputs)

    def encode(rows: Rows) -> Rows:
        start = api.llama_memory_seq_pos_max(memory, 0) + 1  # of no effect, but checked
        check(api.llama_encode(pointer, batch.filled(start, None, rows, outputs=True)))
        return hidden(pointer, len(rows), width).copy()

    return encode


_OPEN: dict[TrainedKind, Callable[[Opening], Context]] = {
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


class LlamaHead(LoadedLayers):
    """Layers run by llama.cpp."""

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
        self._header = header
        self._drafter = drafter
        info = head_info(
            target.info,
            path=path,
            name=path.stem,
            architecture=header.architecture,
            quantization="" if pointer is None else "head",
            parameters=api.llama_model_n_params(pointer) if pointer else 0,
            weight_bytes=api.llama_model_size(pointer) if pointer else 0,
            bytes_read_per_token=drafter.draw_bytes,
            n_layers=drafter.layers,
            variant=drafter.kind.variant,
        )
        super().__init__(target, context, info)

    def open_beside(self, context: Context) -> Context:
        """A context that drafts for another one of the model.

        Raises:
            OutOfMemoryError: its cache does not fit in free memory.
        """
        assert isinstance(context, LlamaContext)
        key = object()
        with ExitStack() as resources:
            resources.callback(self._contexts.pop, key, None)  # once it is closed
            at = Opening(
                self._pointer or self._target.pointer,
                self._header,
                self._drafter,
                self.info.n_vocab,
                self.info.threads,
                self._target.info.cache_type,
                context,
                resources,
            )
            opened = _OPEN[self._drafter.kind](at)
        self._contexts[key] = opened
        context.close_with(opened)
        return opened

    def close(self) -> None:
        """Close its contexts and free the weights, if they are its own."""
        super().close()
        if self._pointer is not None:
            api.llama_model_free(self._pointer)
            self._pointer = None
