"""What llama.cpp would abort on, or hang over, in a file's header: refused before it sees it.

Taken from load_hparams and src/models of llama-cpp-python 0.3.36. What other files end the process
shows when a model runs in a child first (backends/engines/proof_process.py).
"""

import re
from collections.abc import Iterator

from backends.files.gguf_header import GgufHeader, Tensor

Reasons = Iterator[str]
"""Each the rest of a sentence after the file's name; the first is told."""

_MOST_LAYERS = 512
_MOST_EXPERTS = 1024

_NOT_MULTIPLIED = frozenset({9, 15, *range(24, 29)})
"""Type numbers in ggml that it cannot multiply by: those of activations, integers and doubles."""

_MULTIPLIED = re.compile(
    r"(?:^|\.)(?:(?:attn|ssm|markov|selector)_\w+|ffn_(?!\w*tid2eid)\w+"
    r"|\w*(?:norm(?:_\d)?|proj(?:ection)?)|output|token_embd|fc|conv|layer_output_scale)\.weight$|\.bias$|\.ssm_[ad]$"
)
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")
_WITHOUT_COUNTED_EXPERTS = ("hunyuan-dense", "hunyuan_vl")
"""Architectures for which the engine treats one expert as none."""

_WHOLLY_ROTATED = ("qwen3", "qwen3moe")
"""Architectures that rotate every number of a head."""

_HEADS = {
    "eagle3": "an EAGLE-3 head",
    "dflash": "a DFlash head",
    "gemma4-assistant": "an assistant of Gemma 4",
}


def width(header: GgufHeader) -> int:
    return header.integer("embedding_length")


def prediction_layers(header: GgufHeader) -> int:
    """Number of layers that predict further tokens, the last ones of the file."""
    return header.integer("nextn_predict_layers")


def tensor(header: GgufHeader, name: str) -> Tensor | None:
    return next((one for one in header.tensors if one.name == name), None)


def is_whole(header: GgufHeader) -> bool:
    """Whether the file is not the first of several, whose tensors may be in the others."""
    count = header.metadata.get("split.count", 0)
    return not isinstance(count, int) or count <= 1


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


def broken_assertion(header: GgufHeader) -> str:
    """Why the engine would abort on a header, "" if no violation is known."""
    rules = (_layers, _experts, _rotation, _values)
    return next((reason for rule in rules for reason in rule(header)), "")


def _layers(header: GgufHeader) -> Reasons:
    count = header.integer("block_count", 1)
    if not 0 < count <= _MOST_LAYERS:
        yield f"it has {count:,} layers; 1 to {_MOST_LAYERS} can be run"
    if (ahead := prediction_layers(header)) > count:
        yield f"{ahead:,} of its {count:,} layers are to predict ahead"
    kept = count - header.integer("attention.shared_kv_layers")
    if header.architecture in ("gemma4", "gemma3n") and kept < 2:
        yield f"{kept:,} of its layers have keys and values of their own"


def _experts(header: GgufHeader) -> Reasons:
    count = header.integer("expert_count")
    key = "expert_used_count"
    used = max(header.integer(key), *header.integers(key), 0)
    if header.architecture in _WITHOUT_COUNTED_EXPERTS and count <= 1:
        return
    if not 0 <= count <= _MOST_EXPERTS:
        yield f"it has {count:,} experts; up to {_MOST_EXPERTS:,} can be run"
    if used > count or (count and used <= 0):
        yield f"it uses {used:,} of {count:,} experts per token"
    groups = header.integer("expert_group_count")
    used = header.integer("expert_group_used_count")
    if groups and groups >= count:
        yield f"it has {groups:,} groups of {count:,} experts"
    if groups > 1 and (count % groups or not 0 < used < groups):
        yield f"it uses {used:,} of {groups:,} groups of {count:,} experts per token"


def _rotation(header: GgufHeader) -> Reasons:
    """Of a head, an even count may be rotated, up to its size; with sections, some must be."""
    rotated = header.integer("rope.dimension_count", -1)  # the size where it is missing
    in_window = header.integer("rope.dimension_count_swa")
    for count in (rotated, in_window):
        if count > 0 and count % 2:
            yield f"it rotates {count:,} numbers of each head, an odd count"
    heads = header.integer("attention.head_count")
    if heads > 0:
        size = header.integer("attention.key_length", width(header) // heads)
        window_size = header.integer("attention.key_length_swa", size)
        is_partial = header.architecture in _WHOLLY_ROTATED and rotated not in (-1, size)
        if rotated > size or is_partial:
            yield f"it rotates {rotated:,} numbers of heads that have {size:,}"
        if in_window > window_size:
            yield f"it rotates {in_window:,} numbers of heads that have {window_size:,}"
        sections = list(header.integers("rope.dimension_sections"))
        turned = sum(sections) * (4 if len(sections) == 1 else 1)
        if sections and (rotated == 0 or not 0 < turned <= size):
            yield f"it rotates heads of {size:,} numbers in sections of {sections[:4]}"
    scaling = header.metadata.get(f"{header.architecture}.rope.scaling.type")
    if isinstance(scaling, str) and scaling not in _ROPE_SCALINGS:
        yield f"its rotary embedding is scaled by {scaling[:40]!r}"


def _values(header: GgufHeader) -> Reasons:
    for key, value in header.metadata.items():
        if key.endswith("epsilon") and isinstance(value, float) and not value >= 0.0:
            yield f"{key[:80]} is {value}"
    for one in header.tensors:
        if 0 in one.shape:
            yield f"tensor {one.name[:64]} is empty"
        if one.ggml_type in _NOT_MULTIPLIED and _MULTIPLIED.search(one.name):
            yield f"tensor {one.name[:64]} has a type without multiplication"
