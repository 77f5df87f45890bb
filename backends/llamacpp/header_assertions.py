"""What llama.cpp asserts of a file's header: one that breaks it would end the process.

Read from llama_model_base::load_hparams and ggml of llama-cpp-python 0.3.36. What architectures
assert beyond that shows when a model runs in a child first (backends/proof/proof_process.py).
"""

import re
from collections.abc import Callable, Iterator

from backends.files.gguf_header import GgufHeader

_MOST_LAYERS = 512
_MOST_EXPERTS = 1024
_NOT_MULTIPLIED = range(24, 29)
"""Whole numbers and doubles, by ggml's numbers; for these it calls a function that is not there."""

_MULTIPLIED = re.compile(
    r"(?:^|\.)(?:attn_\w+|ffn_(?:gate|up|down)(?:_exps)?|\w*norm|output|ssm_\w+)\.weight$"
)
_HEADS_KEPT = "attention.head_count_kv"
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_WITHOUT_COUNTED_EXPERTS = ("hunyuan-dense", "hunyuan_vl")
"""Architectures for which the engine takes one expert for none."""


def broken_assertion(header: GgufHeader) -> str:
    """Why the engine would end the process over a header, "" where nothing is known against it."""
    return next((reason for rule in _RULES for reason in rule(header)), "")


def _layers(header: GgufHeader) -> Iterator[str]:
    count = _number(header, "block_count")
    if count is not None and not 0 < count <= _MOST_LAYERS:
        yield f"it has {count:,} layers, where 1 to {_MOST_LAYERS} can be run"
    ahead = _number(header, "nextn_predict_layers") or 0
    if count is not None and ahead > count:
        yield f"{ahead:,} of its {count:,} layers are to predict ahead"


def _experts(header: GgufHeader) -> Iterator[str]:
    count = _number(header, "expert_count") or 0
    used = max(_numbers(header, "expert_used_count"), default=0)
    if header.architecture in _WITHOUT_COUNTED_EXPERTS and count <= 1:
        return
    if not 0 <= count <= _MOST_EXPERTS:
        yield f"it has {count:,} experts, where up to {_MOST_EXPERTS:,} can be run"
    if used > count or (count and used <= 0):
        yield f"a token is sent to {used:,} of {count:,} experts"
    yield from _groups(header, count)


def _groups(header: GgufHeader, experts: int) -> Iterator[str]:
    groups = _number(header, "expert_group_count") or 0
    used = _number(header, "expert_group_used_count") or 0
    if groups and groups >= experts:
        yield f"it has {groups:,} groups of {experts:,} experts"
    if groups > 1 and (experts % groups or not 0 < used < groups):
        yield f"a token is sent to {used:,} of {groups:,} groups of {experts:,} experts"


def _heads(header: GgufHeader) -> Iterator[str]:
    """Of each layer the heads that ask are shared out to those that are kept."""
    asking, kept = _numbers(header, "attention.head_count"), _numbers(header, _HEADS_KEPT)
    layers = max(len(asking), len(kept))
    if len(asking) not in (1, layers) or len(kept) not in (1, layers):
        return  # the engine refuses lists of a wrong length
    for one, other in zip(asking * layers, kept * layers, strict=False):
        if other > 0 and one % other:
            yield f"{one:,} attention heads cannot share {other:,}"
            return


def _rotation(header: GgufHeader) -> Iterator[str]:
    for key in ("rope.dimension_count", "rope.dimension_count_swa"):
        width = _number(header, key) or 0
        if width % 2:
            yield f"it rotates {width:,} numbers of each head, which are no pairs"
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
            yield f"tensor {tensor.name[:64]} holds nothing"
        if tensor.ggml_type in _NOT_MULTIPLIED and _MULTIPLIED.search(tensor.name):
            yield f"tensor {tensor.name[:64]} is of a type that nothing is multiplied with"


_RULES: tuple[Callable[[GgufHeader], Iterator[str]], ...] = (
    _layers, _experts, _heads, _rotation, _epsilons, _tensors,
)  # fmt: skip


def _number(header: GgufHeader, key: str) -> int | None:
    """A whole number of the architecture; others the engine refuses, or does without."""
    value = header.metadata.get(f"{header.architecture}.{key}")
    return value if type(value) is int else None


def _numbers(header: GgufHeader, key: str) -> list[int]:
    """A whole number for all layers, or one for each."""
    one = _number(header, key)
    return [one] if one is not None else list(header.integers(key))
