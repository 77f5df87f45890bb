"""Passes of a head that drafts blocks, by llama.cpp."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import Block, Logits
from backends.files.gguf_header import GgufHeader
from backends.heads.block_head import BlockHead, after_likeliest, in_lattice, independent
from backends.heads.hidden_states import Rows
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.file_checks import tensor, width
from backends.llamacpp.heads.opening import HeadSource, chunk, open_context
from backends.llamacpp.heads.rows import RowBatch, add_layer_states, decode, hidden, keep_hidden

if TYPE_CHECKING:
    import ctypes

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """How a head's pass over a block is made up.

    mask: token that stands for those to be drafted. longest: most tokens of a draft. is_chained:
    whether rows were computed after the likeliest tokens (DSpark). from_last: whether the row of
    the text's last token drafts, and not only those of masks. candidates: of each place, if the
    pass leaves scores of pairs instead of logits (DFlash2), else 0. width: of its hidden states.
    """

    mask: int
    longest: int
    is_chained: bool
    from_last: bool
    candidates: int
    width: int


class LlamaBlockPasses:
    """Layers of a head in an open context of the engine."""

    def __init__(
        self,
        pointer: api.llama_context_p,
        form: BlockFormat,
        *,
        inputs: int,
        n_vocab: int,
        n_chunk: int,
        sections: int,
    ) -> None:
        """Take over an open context.

        inputs: numbers of the model's states. sections: numbers of a position, in passes over rows.
        """
        self.pointer: api.llama_context_p | None = pointer
        self._memory = cast("api.llama_memory_t", api.llama_get_memory(pointer))
        self._form = form
        self._batch = RowBatch(n_chunk, inputs, sections)
        self._n_vocab = n_vocab

    def inject(self, start: int, rows: Rows) -> None:
        self._pass(self._batch.filled(start, None, rows, outputs=False))

    def remove(self, length: int) -> None:
        api.llama_memory_seq_rm(self._memory, 0, length, -1)

    def draft(self, start: int, known: Sequence[int], count: int) -> Block:
        form = self._form
        masks = count - 1 if form.from_last else count
        block = [*known, *[form.mask] * masks]
        try:
            self._pass(self._batch.filled(start, block, None, outputs=not form.candidates))
        finally:
            self.remove(start)
        if form.candidates:
            return self._lattice(known[1:], len(block))
        rows = self._rows(len(block))[len(block) - count :]
        return after_likeliest(rows) if form.is_chained else independent(rows)

    def _rows(self, count: int) -> Logits:
        assert self.pointer is not None, "the context is closed"
        found = cast("ctypes._Pointer[ctypes.c_float]", api.llama_get_logits(self.pointer))  # noqa: SLF001
        return np.ctypeslib.as_array(found, shape=(count, self._n_vocab))

    def _lattice(self, guessed: Sequence[int], count: int) -> Block:
        assert self.pointer is not None, "the context is closed"
        rows = hidden(self.pointer, count, self._form.width)[1:]
        return in_lattice(rows, self._form.candidates, self._n_vocab, guessed)

    def _pass(self, batch: Any) -> None:
        assert self.pointer is not None, "the context is closed"
        decode(self.pointer, batch)

    def close(self) -> None:
        """Run nothing more; who opened the context frees it."""
        self.pointer = None


# DFlash heads (arXiv 2602.06036), DFlash2's and DSpark's included.
#
# Passes are made up as in common/speculative.cpp of llama-cpp-python 0.3.36.

_SECTIONS = 4
"""Numbers of a position where an image has two dimensions more (M-RoPE)."""


def open_dflash(source: HeadSource, target: LlamaContext, resources: ExitStack) -> BlockHead:
    """A context of a DFlash head beside one of its model.

    Raises:
        DraftUnavailableError: this build of llama.cpp does not export what the head needs.
        OutOfMemoryError: its cache does not fit in free memory.
    """
    header = source.header
    form = format_of(header)
    pointer = open_context(source, target, resources)
    api.llama_set_causal_attn(pointer, bool(header.integer("attention.causal")))
    if form.candidates:
        keep_hidden(pointer, only_outputs=False)
    layers = header.integers("target_layers")
    states = add_layer_states(target, layers, width(header), resources)
    is_on_image = any(header.integers("rope.dimension_sections"))
    passes = LlamaBlockPasses(
        pointer,
        form,
        inputs=states.width,
        n_vocab=source.n_vocab,
        n_chunk=chunk(target),
        sections=_SECTIONS if is_on_image else 1,
    )
    return BlockHead(
        passes,
        states,
        longest=form.longest,
        n_vocab=source.n_vocab,
        n_ctx=target.n_ctx,
        n_chunk=chunk(target),
        kv_bytes_per_token=source.kv_bytes_per_token,
        on_close=resources.pop_all().close,
    )


def format_of(header: GgufHeader) -> BlockFormat:
    """The format of a checked head's blocks."""
    block = header.integer("block_size")
    is_chained = tensor(header, "markov_w1.weight") is not None
    from_last = is_chained and bool(header.integer("sample_from_anchor", 1))
    has_lattice = tensor(header, "selector_hidden.weight") is not None
    mask = header.metadata["tokenizer.ggml.mask_token_id"]
    assert isinstance(mask, int), "it was checked"
    return BlockFormat(
        mask=mask,
        longest=block if from_last else block - 1,
        is_chained=is_chained,
        from_last=from_last,
        candidates=header.integer("selector_top_k") if has_lattice else 0,
        width=width(header),
    )
