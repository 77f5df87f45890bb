"""Layers of a model that predict further tokens, in its own file or in one beside it.

graph_mtp of the architectures in llama-cpp-python 0.3.36; others have no such graph.
"""

from backends.files.gguf_header import GgufHeader
from backends.llamacpp.head_checks.header_facts import (
    Reasons,
    head_sizes,
    is_whole,
    prediction_layers,
    tensor,
    trunk_layers,
    width,
)

_ONE_LAYER = frozenset(
    (
        "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa", "glm4moe",
        "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next",
    )
)  # fmt: skip
"""Architectures that assert a single prediction layer."""

_SEVERAL_LAYERS = frozenset({"hy_v3", "mimo2", "step35"})

PREDICTING = _ONE_LAYER | _SEVERAL_LAYERS
"""Architectures whose prediction layers can be run."""

_EXPERTS = ("ffn_gate_inp",)
_ASSERTED = {
    "bailingmoe3": ("nextn.shared_head_norm",),
    "cohere2moe": _EXPERTS,
    "deepseek2": (*_EXPERTS, "attn_q_a", "attn_q_b", "attn_kv_a_mqa", "attn_k_b"),
    "deepseek32": _EXPERTS,
    "glm-dsa": _EXPERTS,
    "glm4moe": _EXPERTS,
    "mimo2": ("attn_qkv", "ffn_gate", "ffn_up", "ffn_down"),
    "nemotron_h_moe": (*_EXPERTS, "nextn.shared_head_norm"),
}
"""Tensors of a prediction layer that the architecture's graph asserts; files may lack them."""


def prediction_check(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against the prediction layers of a file for a model, which may be the same file."""
    name, count = head.architecture, prediction_layers(head)
    if name not in PREDICTING:
        yield f"llama.cpp cannot draft with layers of a {name}"
    if count == 0:
        yield "it has no prediction layers"
        return
    if name in _ONE_LAYER and count != 1:
        yield f"it has {count:,} prediction layers, and 1 of a {name} can be run"
    first = trunk_layers(head)
    for layer in range(first, first + min(count, 64)) if is_whole(head) else ():
        if tensor(head, f"blk.{layer}.nextn.eh_proj.weight") is None:
            yield f"its prediction layer {layer} is missing"
        for part in _ASSERTED.get(name, ()):
            if tensor(head, f"blk.{layer}.{part}.weight") is None:
                yield f"its prediction layer {layer} lacks {part}"
    yield from _same_model(head, target)


def predicts(header: GgufHeader) -> bool:
    """Whether a model has prediction layers of its own that llama.cpp can run."""
    return next(prediction_check(header, header), None) is None


def _same_model(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against a file beside the model."""
    if head.architecture != target.architecture:
        yield f"it is for a {head.architecture}, and this model is a {target.architecture}"
    if width(head) != width(target):
        yield f"it is for models of width {width(head):,}, and this one's is {width(target):,}"
    if trunk_layers(head) != trunk_layers(target):
        yield f"it is for a model of {trunk_layers(head):,} layers, not {trunk_layers(target):,}"
    if head_sizes(head) != head_sizes(target):
        yield "its heads differ in size from the model's"
