"""Assertions of llama.cpp on single architectures: those that keep running states, and Gemma 4.

Taken from src/models of llama-cpp-python 0.3.36, and from fuzzed files that ended a child process.
"""

from collections.abc import Iterator

from backends.files.gguf_header import GgufHeader

_DELTA_NETS = frozenset({"qwen35", "qwen35moe", "qwen3next"})
_MAMBA2 = frozenset({"mamba2", "nemotron_h", "nemotron_h_moe", "granitehybrid"})
_CONVOLUTIONS = frozenset({"lfm2", "lfm2moe"})
_EQUAL_HEADS = _DELTA_NETS | frozenset(
    {"llama", "qwen3", "qwen3moe", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe"}
)
"""Architectures whose values have as many numbers as their keys."""

_WHOLLY_ROTATED = frozenset({"qwen3", "qwen3moe"})
"""Architectures that rotate every number of a head."""

_LEAST_KEPT = 2
"""Layers of Gemma 4 that must have keys and values of their own."""


def broken_by_architecture(header: GgufHeader) -> Iterator[str]:
    """Why the engine would abort on a header of its architecture."""
    name = header.architecture
    if name in _EQUAL_HEADS:
        yield from _equal_heads(header)
    if name in _WHOLLY_ROTATED:
        yield from _whole_rotation(header)
    if name in _DELTA_NETS:
        yield from _delta_net(header)
    if name in _MAMBA2:
        yield from _mamba2(header)
    if name in _CONVOLUTIONS and header.integer("shortconv.l_cache", 2) < 2:
        yield f"its convolutions are over {header.integer('shortconv.l_cache'):,} tokens"
    if name in ("gemma4", "gemma3n"):
        kept = header.integer("block_count") - header.integer("attention.shared_kv_layers")
        if kept < _LEAST_KEPT:
            yield f"{kept:,} of its layers have keys and values of their own"


def _whole_rotation(header: GgufHeader) -> Iterator[str]:
    size, _ = _head_sizes(header)
    rotated = header.integer("rope.dimension_count", size)
    if rotated != size:
        yield f"it rotates {rotated:,} numbers of heads that have {size:,}"


def _equal_heads(header: GgufHeader) -> Iterator[str]:
    key_size, value_size = _head_sizes(header)
    if key_size != value_size:
        yield f"the keys of its heads have {key_size:,} numbers, and the values {value_size:,}"


def _head_sizes(header: GgufHeader) -> tuple[int, int]:
    """Numbers of a head's key and value; the engine takes both for 0 in a model without heads."""
    by_layer = header.integers("attention.head_count")
    heads = by_layer[0] if by_layer else header.integer("attention.head_count")
    if heads <= 0:
        return 0, 0
    usual = header.integer("embedding_length") // heads
    return (
        header.integer("attention.key_length", usual),
        header.integer("attention.value_length", usual),
    )


def _delta_net(header: GgufHeader) -> Iterator[str]:
    state, inner = header.integer("ssm.state_size"), header.integer("ssm.inner_size")
    heads, groups = header.integer("ssm.time_step_rank"), header.integer("ssm.group_count")
    if min(state, heads, groups) <= 0 or heads % groups or inner != state * heads:
        yield (
            f"its state of {inner:,} numbers does not divide into {heads:,} heads of {state:,} in "
            f"{groups:,} groups"
        )
    yield from _kernel(header)


def _mamba2(header: GgufHeader) -> Iterator[str]:
    heads, groups = header.integer("ssm.time_step_rank"), header.integer("ssm.group_count")
    inner = header.integer("ssm.inner_size")
    if min(heads, groups, inner) <= 0 or inner % heads or inner % groups:
        yield f"its state of {inner:,} numbers does not divide into {heads:,} heads"
    yield from _kernel(header)


def _kernel(header: GgufHeader) -> Iterator[str]:
    kernel = header.integer("ssm.conv_kernel")
    if kernel < 2:
        yield f"its convolutions are over {kernel:,} tokens"
