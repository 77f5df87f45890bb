"""DFlash heads (arXiv 2602.06036), DFlash2's and DSpark's included.

Passes are made up as in common/speculative.cpp of llama-cpp-python 0.3.36.
"""

from contextlib import ExitStack

from llama_cpp import llama_cpp as api

from backends.files.gguf_header import GgufHeader
from backends.heads.block_head import BlockHead
from backends.llamacpp.head_checks.header_facts import tensor, width
from backends.llamacpp.heads.block_passes import BlockFormat, LlamaBlockPasses
from backends.llamacpp.heads.head_opening import HeadSource, chunk, open_context
from backends.llamacpp.heads.layer_states import add_layer_states
from backends.llamacpp.heads.pass_rows import keep_hidden
from backends.llamacpp.llama_context import LlamaContext

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
