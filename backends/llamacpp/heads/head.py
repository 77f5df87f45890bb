"""A head loaded by llama.cpp: layers that draft for one model from its hidden states."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import (
    Block,
    Context,
    DraftUnavailableError,
    Logits,
    ModelError,
    check_room,
    check_truncation,
)
from backends.files.gguf_drafter import TrainedDrafter, TrainedKind, drafter_in
from backends.files.gguf_header import GgufHeader, read_model
from backends.hardware.gpu_loss import NO_DEVICES
from backends.heads.head import (
    BlockHead,
    LoadedLayers,
    after_likeliest,
    head_info,
    in_lattice,
    independent,
)
from backends.heads.hidden_states import Rows
from backends.llamacpp import library
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.file_checks import tensor, width
from backends.llamacpp.head_checks import checked_head
from backends.llamacpp.heads.chain import ChainContext, Transform
from backends.llamacpp.heads.last_state import LlamaLastState, load_last_state
from backends.llamacpp.heads.opening import (
    HeadPasses,
    Opening,
    RowBatch,
    TokenHead,
    add_layer_states,
    check,
    hidden,
    keep_hidden,
)
from backends.llamacpp.loading import load_error
from backends.llamacpp.model import LlamaModel

_SECTIONS = 4
"""Numbers of a position where an image has two dimensions more (M-RoPE)."""


class LlamaBlockPasses(HeadPasses):
    """Layers of a head in an open context of the engine."""

    def __init__(self, at: Opening, pointer: api.llama_context_p, inputs: int) -> None:
        """Take over an open context; inputs: numbers of the model's states."""
        super().__init__(pointer, at.n_vocab)
        header, mask = at.header, at.header.metadata["tokenizer.ggml.mask_token_id"]
        assert isinstance(mask, int), "it was checked"
        self._mask = mask
        """Token that stands for those to be drafted."""
        self._is_chained = at.drafter.kind is TrainedKind.DSPARK
        """Whether rows were computed after the likeliest tokens."""
        self._from_last = at.drafter.longest == header.integer("block_size")
        """Whether the row of the text's last token drafts, and not only those of masks."""
        self._candidates = candidates_of(header)
        self._width = width(header)
        is_on_image = any(header.integers("rope.dimension_sections"))
        self._batch = RowBatch(at.n_chunk, inputs, _SECTIONS if is_on_image else 1)

    def inject(self, start: int, rows: Rows) -> None:
        self._run(self._batch.filled(start, None, rows, outputs=False))

    def remove(self, length: int) -> None:
        self._remove(length)

    def draft(self, start: int, known: Sequence[int], count: int) -> Block:
        masks = count - 1 if self._from_last else count
        block = [*known, *[self._mask] * masks]
        try:
            self._run(self._batch.filled(start, block, None, outputs=not self._candidates))
        finally:
            self._remove(start)
        if self._candidates:
            rows = hidden(self.pointer, len(block), self._width)[1:]
            return in_lattice(rows, self._candidates, self._n_vocab, known[1:])
        rows = self._logits(len(block))[len(block) - count :]
        return after_likeliest(rows) if self._is_chained else independent(rows)


def candidates_of(header: GgufHeader) -> int:
    """Of each place, if a pass leaves scores of pairs instead of logits (DFlash2), else 0."""
    has_lattice = tensor(header, "selector_hidden.weight") is not None
    return header.integer("selector_top_k") if has_lattice else 0


def open_dflash(at: Opening) -> BlockHead:
    header = at.header
    pointer = at.context()
    api.llama_set_causal_attn(pointer, bool(header.integer("attention.causal")))
    if candidates_of(header):
        keep_hidden(pointer, only_outputs=False)
    layers = header.integers("target_layers")
    states = add_layer_states(at.target, layers, width(header), at.resources)
    return BlockHead(
        LlamaBlockPasses(at, pointer, states.width),
        states,
        longest=at.drafter.longest,
        n_vocab=at.n_vocab,
        n_ctx=at.target.n_ctx,
        n_chunk=at.n_chunk,
        kv_bytes_per_token=at.kv_bytes_per_token,
        on_close=at.resources.pop_all().close,
    )


# Assistants of Gemma 4, which read the cache of the model they draft for.
#
# Passes are made up as in common/speculative.cpp of llama-cpp-python 0.3.36: all tokens of a
# draft are at the place after the model's last entry.


def open_assistant(at: Opening) -> "AssistantContext":
    """The engine resets the cells that the two share (the constructor of llama_kv_cache)."""
    assert at.target.length == 0, "an assistant's context is opened beside an empty one"
    pointer = at.context(reads_target=True)
    keep_hidden(pointer, only_outputs=True)
    return AssistantContext(at, pointer)


class AssistantContext(TokenHead):
    """Reads a token and the hidden state before it, with the model's own entries.

    What the model has passed need not be read, so that only later tokens take a pass. Their states
    are the assistant's own but for that of the model's last token.
    """

    def __init__(self, at: Opening, pointer: api.llama_context_p) -> None:
        states = at.final_states(most=at.target.n_chunk)
        self._batch = RowBatch(1, states.width)
        self._own: Rows | None = None
        """The assistant's state after the last token, if that took a pass."""
        super().__init__(at, pointer, states)
        self.n_chunk = self.max_logits = at.target.n_chunk
        self.kv_bytes_per_token = 0

    def rollback_to(self, length: int) -> int:
        return min(length, len(self.tokens), self._states.end)

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        start, count = len(self.tokens), len(tokens)
        assert 0 <= n_logits <= count <= self.n_chunk
        check_room(self, count)
        passed = min(max(self._states.end - start, 0), count)
        if count - n_logits < passed:
            raise ModelError("the assistant could not draft", "its model has read further")
        self.tokens.extend(tokens[:passed])
        rows: list[Logits] = []
        try:
            for token in tokens[passed:]:
                rows = [row.copy() for row in rows]  # the next pass overwrites them
                rows.append(self._pass(token))
        except ModelError:
            self.truncate(start)
            raise
        if n_logits == 0:
            return np.empty((0, self._n_vocab), np.float32)
        return rows[0] if len(rows) == 1 else np.vstack(rows[-n_logits:])

    def _pass(self, token: int) -> Logits:
        place = api.llama_memory_seq_pos_max(self._memory, 0) + 1
        self._run(self._batch.filled(place, [token], self._state(), outputs=True))
        self.tokens.append(token)
        self._own = hidden(self.pointer, 1, self._states.width).copy()
        row = self._logits(1)
        if np.isnan(row[0, 0]):  # all are, where one of the two uses flash attention
            why = "it attends in another way than its model here"
            raise ModelError("the assistant could not draft", why)
        return row

    def _state(self) -> Rows:
        """The state after the last token; zeros if none is known, as while costs are measured."""
        states, length = self._states, len(self.tokens)
        if states.first < length == states.end:
            return states.rows(length - 1, length)
        if self._own is None:
            return np.zeros((1, states.width), np.float32)
        return self._own

    def truncate(self, length: int) -> None:
        check_truncation(length, len(self.tokens))
        if length < len(self.tokens):
            del self.tokens[length:]
            self._own = None


def open_prediction(at: Opening) -> ChainContext:
    layers = at.drafter.layers
    most = at.branches if layers == 1 else 1
    pointer = at.context(predicts=True, most_branches=most)
    keep_hidden(pointer, only_outputs=True)
    states = at.final_states()
    return ChainContext(at, pointer, states, width=states.width, max_branches=most, layers=layers)


def open_eagle3(at: Opening) -> ChainContext:
    """A context that runs a token at its own position, where the paper has the one before.

    Positions are rotary, so that only their distances count.
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


def load_head(
    path: Path, target: LlamaModel, context: LlamaContext
) -> "LlamaHead | LlamaLastState":
    """Load a head for a model; its own layers need no loading.

    path: the head's file, or the model's own; the folder of a last-state head. context: of the
    model, which the head reads.
    """
    if path.is_dir():
        return load_last_state(path, target, context)
    header = checked_head(path, target.info.path)
    drafter = drafter_in(header, read_model(path)[1])
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
    parameters.devices = parameters.devices if target.is_offloaded else NO_DEVICES
    library.forget_log()
    pointer = api.llama_model_load_from_file(os.fsencode(path), parameters)
    if pointer is None:
        raise load_error(path, header)
    return LlamaHead(path, header, drafter, target, context, pointer)


class LlamaHead(LoadedLayers):
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
