"""Facts of a header that several checks of heads need."""

import re
from collections.abc import Callable, Iterator

from backends.files.gguf_header import GgufHeader, Tensor

Reasons = Iterator[str]
"""Each the rest of a sentence after the head's name; the first is told."""


def width(header: GgufHeader) -> int:
    """Width of the hidden states."""
    return header.integer("embedding_length")


def prediction_layers(header: GgufHeader) -> int:
    """Number of layers that predict further tokens, the last ones of the file."""
    return header.integer("nextn_predict_layers")


def trunk_layers(header: GgufHeader) -> int:
    """Number of the other layers."""
    return header.integer("block_count") - prediction_layers(header)


def head_sizes(header: GgufHeader) -> tuple[int, int]:
    """Numbers of a head's key and value in layers of full attention."""
    heads = header.integer("attention.head_count") or max(
        header.integers("attention.head_count"), default=0
    )
    usual = width(header) // heads if heads > 0 else 0
    return (
        header.integer("attention.key_length", usual),
        header.integer("attention.value_length", usual),
    )


def by_layer(header: GgufHeader, key: str) -> list[int]:
    """A number of each layer, given as a list or once for all."""
    count = header.integer("block_count")
    return list(header.integers(key)) or [header.integer(key)] * min(count, 1 << 12)


def tensor(header: GgufHeader, name: str) -> Tensor | None:
    """Tensor of this name, None if the file lacks it."""
    return next((one for one in header.tensors if one.name == name), None)


def is_whole(header: GgufHeader) -> bool:
    """Whether the file is not the first of several, whose tensors may be in the others."""
    count = header.metadata.get("split.count", 0)
    return not isinstance(count, int) or count <= 1


_HEADS = {
    "eagle3": "an EAGLE-3 head",
    "dflash": "a DFlash head",
    "gemma4-assistant": "an assistant of Gemma 4",
}


def why_not_alone(header: GgufHeader) -> str:
    """Why a file is no model of its own, as the rest of a sentence; "" if it is one.

    A file with prediction layers but no first layer loads, and the first pass ends the process.
    """
    if header.architecture in _HEADS:
        kind = _HEADS[header.architecture]
        return f"it is {kind}, which drafts for another model and cannot answer alone"
    lacks_trunk = is_whole(header) and tensor(header, "blk.0.attn_norm.weight") is None
    if prediction_layers(header) > 0 and lacks_trunk:
        return "it has the prediction layers of a model without the model"
    return ""


# Assertions of llama.cpp on single architectures: those that keep running states, and Gemma 4.
#
# Taken from src/models of llama-cpp-python 0.3.36, and from fuzzed files that ended a child
# process.

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


# Assertions of llama.cpp on a file's header: a violation would abort the process.
#
# Taken from llama_model_base::load_hparams and ggml of llama-cpp-python 0.3.36. Assertions of
# single architectures show when a model runs in a child first (backends/proof/proof_process.py).

_MOST_LAYERS = 512
_MOST_EXPERTS = 1024
_NOT_MULTIPLIED = frozenset({9, 15, *range(24, 29)})
"""Type numbers in ggml that it cannot multiply by: those of activations, integers and doubles."""

_MULTIPLIED = re.compile(
    r"(?:^|\.)(?:(?:attn|ssm|markov|selector)_\w+|ffn_(?!\w*tid2eid)\w+"
    r"|\w*(?:norm(?:_\d)?|proj(?:ection)?)|output|token_embd|fc|conv|layer_output_scale)\.weight$|\.bias$|\.ssm_[ad]$"
)
_KV_HEADS = "attention.head_count_kv"
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_WITHOUT_COUNTED_EXPERTS = ("hunyuan-dense", "hunyuan_vl")
"""Architectures for which the engine treats one expert as none."""


def broken_assertion(header: GgufHeader) -> str:
    """Why the engine would abort on a header, "" if no violation is known."""
    return next((reason for rule in _RULES for reason in rule(header)), "")


def _layers(header: GgufHeader) -> Iterator[str]:
    count = _number(header, "block_count")
    if count is not None and not 0 < count <= _MOST_LAYERS:
        yield f"it has {count:,} layers; 1 to {_MOST_LAYERS} can be run"
    ahead = _number(header, "nextn_predict_layers") or 0
    if count is not None and ahead > count:
        yield f"{ahead:,} of its {count:,} layers are to predict ahead"


def _experts(header: GgufHeader) -> Iterator[str]:
    count = _number(header, "expert_count") or 0
    used = max(_numbers(header, "expert_used_count"), default=0)
    if header.architecture in _WITHOUT_COUNTED_EXPERTS and count <= 1:
        return
    if not 0 <= count <= _MOST_EXPERTS:
        yield f"it has {count:,} experts; up to {_MOST_EXPERTS:,} can be run"
    if used > count or (count and used <= 0):
        yield f"it uses {used:,} of {count:,} experts per token"
    yield from _groups(header, count)


def _groups(header: GgufHeader, experts: int) -> Iterator[str]:
    groups = _number(header, "expert_group_count") or 0
    used = _number(header, "expert_group_used_count") or 0
    if groups and groups >= experts:
        yield f"it has {groups:,} groups of {experts:,} experts"
    if groups > 1 and (experts % groups or not 0 < used < groups):
        yield f"it uses {used:,} of {groups:,} groups of {experts:,} experts per token"


def _heads(header: GgufHeader) -> Iterator[str]:
    """In each layer, query heads must be a multiple of key-value heads."""
    queries, keys = _numbers(header, "attention.head_count"), _numbers(header, _KV_HEADS)
    layers = max(len(queries), len(keys))
    if len(queries) not in (1, layers) or len(keys) not in (1, layers):
        return  # the engine reports lists of a wrong length
    for query_heads, kv_heads in zip(queries * layers, keys * layers, strict=False):
        if kv_heads > 0 and query_heads % kv_heads:
            yield f"{query_heads:,} attention heads cannot share {kv_heads:,}"
            return


def _rotation(header: GgufHeader) -> Iterator[str]:
    for key in ("rope.dimension_count", "rope.dimension_count_swa"):
        width = _number(header, key) or 0
        if width % 2:
            yield f"it rotates {width:,} numbers of each head, an odd count"
    yield from _rotated_heads(header)
    scaling = header.metadata.get(f"{header.architecture}.rope.scaling.type")
    if isinstance(scaling, str) and scaling not in _ROPE_SCALINGS:
        yield f"its rotary embedding is scaled by {scaling[:40]!r}"


def _rotated_heads(header: GgufHeader) -> Iterator[str]:
    """More numbers of a head may not be rotated than it has; with sections, some must be."""
    heads, width = _number(header, "attention.head_count") or 0, header.integer("embedding_length")
    if heads <= 0:
        return
    size = header.integer("attention.key_length", width // heads)
    window_size = header.integer("attention.key_length_swa", size)
    rotated = _number(header, "rope.dimension_count")
    in_window = _number(header, "rope.dimension_count_swa")
    for count, whole in ((rotated or 0, size), (in_window or 0, window_size)):
        if count > whole:
            yield f"it rotates {count:,} numbers of heads that have {whole:,}"
    sections = _numbers(header, "rope.dimension_sections")
    turned = sum(sections) * (4 if len(sections) == 1 else 1)
    if sections and (rotated == 0 or not 0 < turned <= size):
        yield f"it rotates heads of {size:,} numbers in sections of {sections[:4]}"


def _epsilons(header: GgufHeader) -> Iterator[str]:
    for key, value in header.metadata.items():
        if key.endswith("epsilon") and isinstance(value, float) and not value >= 0.0:
            yield f"{key[:80]} is {value}"


def _tensors(header: GgufHeader) -> Iterator[str]:
    for tensor in header.tensors:
        if 0 in tensor.shape:
            yield f"tensor {tensor.name[:64]} is empty"
        if tensor.ggml_type in _NOT_MULTIPLIED and _MULTIPLIED.search(tensor.name):
            yield f"tensor {tensor.name[:64]} has a type without multiplication"


_RULES: tuple[Callable[[GgufHeader], Iterator[str]], ...] = (
    _layers, _experts, _heads, _rotation, _epsilons, _tensors, broken_by_architecture,
)  # fmt: skip


def _number(header: GgufHeader, key: str) -> int | None:
    """Integer of the architecture; the engine reports or ignores values of other types."""
    value = header.metadata.get(f"{header.architecture}.{key}")
    return value if type(value) is int else None


def _numbers(header: GgufHeader, key: str) -> list[int]:
    """Integer for all layers, or one for each."""
    shared = _number(header, key)
    return [shared] if shared is not None else list(header.integers(key))
