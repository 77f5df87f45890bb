"""Passes of a head that drafts blocks, by llama.cpp."""

from collections.abc import Sequence
from dataclasses import dataclass

from llama_cpp import llama_cpp as api

from backends.base import Block
from backends.files.gguf_header import GgufHeader
from backends.heads.head import BlockHead, after_likeliest, in_lattice, independent
from backends.heads.hidden_states import Rows
from backends.llamacpp.file_checks import tensor, width
from backends.llamacpp.heads.opening import HeadPasses, Opening, add_layer_states
from backends.llamacpp.heads.rows import RowBatch, hidden, keep_hidden

_SECTIONS = 4
"""Numbers of a position where an image has two dimensions more (M-RoPE)."""


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


class LlamaBlockPasses(HeadPasses):
    """Layers of a head in an open context of the engine."""

    def __init__(
        self, at: Opening, pointer: api.llama_context_p, form: BlockFormat, inputs: int
    ) -> None:
        """Take over an open context; inputs: numbers of the model's states."""
        super().__init__(pointer, at.n_vocab)
        self._form = form
        is_on_image = any(at.header.integers("rope.dimension_sections"))
        self._batch = RowBatch(at.n_chunk, inputs, _SECTIONS if is_on_image else 1)

    def inject(self, start: int, rows: Rows) -> None:
        self._run(self._batch.filled(start, None, rows, outputs=False))

    def remove(self, length: int) -> None:
        self._remove(length)

    def draft(self, start: int, known: Sequence[int], count: int) -> Block:
        form = self._form
        masks = count - 1 if form.from_last else count
        block = [*known, *[form.mask] * masks]
        try:
            self._run(self._batch.filled(start, block, None, outputs=not form.candidates))
        finally:
            self._remove(start)
        if form.candidates:
            rows = hidden(self.pointer, len(block), form.width)[1:]
            return in_lattice(rows, form.candidates, self._n_vocab, known[1:])
        rows = self._logits(len(block))[len(block) - count :]
        return after_likeliest(rows) if form.is_chained else independent(rows)


def open_dflash(at: Opening) -> BlockHead:
    """A context of a DFlash head beside one of its model.

    Raises:
        DraftUnavailableError: this build of llama.cpp does not export what the head needs.
        OutOfMemoryError: its cache does not fit in free memory.
    """
    header = at.header
    form = format_of(header)
    pointer = at.context()
    api.llama_set_causal_attn(pointer, bool(header.integer("attention.causal")))
    if form.candidates:
        keep_hidden(pointer, only_outputs=False)
    layers = header.integers("target_layers")
    states = add_layer_states(at.target, layers, width(header), at.resources)
    return BlockHead(
        LlamaBlockPasses(at, pointer, form, states.width),
        states,
        longest=form.longest,
        n_vocab=at.n_vocab,
        n_ctx=at.target.n_ctx,
        n_chunk=at.n_chunk,
        kv_bytes_per_token=at.kv_bytes_per_token,
        on_close=at.resources.pop_all().close,
    )


def format_of(header: GgufHeader) -> BlockFormat:
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
