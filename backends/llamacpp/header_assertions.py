"""Assertions of llama.cpp on a file's header: a violation would abort the process.

Taken from llama_model_base::load_hparams and ggml of llama-cpp-python 0.3.36. Assertions of single
architectures show when a model runs in a child first (backends/proof/proof_process.py).
"""

import re
from collections.abc import Callable, Iterator

from backends.files.gguf_header import GgufHeader

_MOST_LAYERS = 512
_MOST_EXPERTS = 1024
_NOT_MULTIPLIED = range(24, 29)
"""Type numbers of integers and doubles in ggml, which has no multiplication for them."""

_MULTIPLIED = re.compile(
    r"(?:^|\.)(?:attn_\w+|ffn_(?:gate|up|down)(?:_exps)?|\w*norm|output|ssm_\w+)\.weight$"
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
    scaling = header.metadata.get(f"{header.architecture}.rope.scaling.type")
    if isinstance(scaling, str) and scaling not in _ROPE_SCALINGS:
        yield f"its rotary embedding is scaled by {scaling[:40]!r}"


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
    _layers, _experts, _heads, _rotation, _epsilons, _tensors,
)  # fmt: skip


def _number(header: GgufHeader, key: str) -> int | None:
    """Integer of the architecture; the engine reports or ignores values of other types."""
    value = header.metadata.get(f"{header.architecture}.{key}")
    return value if type(value) is int else None


def _numbers(header: GgufHeader, key: str) -> list[int]:
    """Integer for all layers, or one for each."""
    shared = _number(header, key)
    return [shared] if shared is not None else list(header.integers(key))
