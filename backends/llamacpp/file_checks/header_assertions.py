"""Assertions of llama.cpp on a file's header: a violation would abort the process.

Taken from llama_model_base::load_hparams and ggml of llama-cpp-python 0.3.36. Assertions of single
architectures show when a model runs in a child first (backends/proof/proof_process.py).
"""

import re
from collections.abc import Callable, Iterator

from backends.files.gguf_header import GgufHeader
from backends.llamacpp.file_checks.architecture_assertions import broken_by_architecture

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
