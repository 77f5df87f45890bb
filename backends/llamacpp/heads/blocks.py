"""Passes of a head that drafts blocks, by llama.cpp."""

from collections.abc import Sequence

from llama_cpp import llama_cpp as api

from backends.base import Block
from backends.files.gguf_drafter import TrainedKind
from backends.files.gguf_header import GgufHeader
from backends.heads.head import BlockHead, after_likeliest, in_lattice, independent
from backends.heads.hidden_states import Rows
from backends.llamacpp.file_checks import tensor, width
from backends.llamacpp.heads.opening import HeadPasses, Opening, add_layer_states
from backends.llamacpp.heads.rows import RowBatch, hidden, keep_hidden

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
    """A context of a DFlash head beside one of its model.

    Raises:
        DraftUnavailableError: this build of llama.cpp does not export what the head needs.
        OutOfMemoryError: its cache does not fit in free memory.
    """
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
