"""EAGLE-3 heads: Li et al. 2025 (arXiv 2503.01840), section 3."""

from contextlib import ExitStack
from typing import cast

from llama_cpp import llama_cpp as api

from backends.base import ModelError
from backends.base.hidden_states import Rows
from backends.llamacpp.heads.chain_context import ChainContext, Transform
from backends.llamacpp.heads.head_opening import HeadSource, branches, chunk, open_context, opened
from backends.llamacpp.heads.layer_states import add_layer_states
from backends.llamacpp.heads.pass_rows import hidden, keep_hidden
from backends.llamacpp.heads.row_batch import RowBatch
from backends.llamacpp.llama_context import LlamaContext


def open_eagle3(source: HeadSource, target: LlamaContext, resources: ExitStack) -> ChainContext:
    """A context of a head that reads three layers' inputs, beside one of its model.

    It runs a token at the token's own position, where the paper's code and llama.cpp's have the one
    before: positions are rotary, so that only their distances count.

    Raises:
        DraftUnavailableError: this build of llama.cpp does not export what the head needs.
        OutOfMemoryError: its cache does not fit in free memory.
    """
    header, most = source.header, branches(target)
    width, layers = header.integer("embedding_length"), header.integers("target_layers")
    pointer = open_context(source, target, resources, most_branches=most)
    keep_hidden(pointer, only_outputs=True)
    inputs = header.integer("target_hidden_size")
    states = add_layer_states(target, layers, inputs, resources)
    return ChainContext(
        opened(source, target, pointer, states, resources),
        width=width,
        max_branches=most,
        transform=_encoder(pointer, states.width, width, chunk(target)),
        skips_first=True,
        selects_rows=False,
    )


def _encoder(pointer: api.llama_context_p, inputs: int, width: int, most: int) -> Transform:
    """Fuses the layers' inputs of up to most tokens into one row each (the paper's g)."""
    memory = cast("api.llama_memory_t", api.llama_get_memory(pointer))
    batch = RowBatch(most, inputs)

    def encode(rows: Rows) -> Rows:
        start = api.llama_memory_seq_pos_max(memory, 0) + 1  # of no effect, but checked
        if status := api.llama_encode(pointer, batch.filled(start, None, rows, outputs=True)):
            raise ModelError("the head could not draft", f"llama.cpp code {status}")
        return hidden(pointer, len(rows), width).copy()

    return encode
