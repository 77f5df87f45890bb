"""EAGLE-3 heads: llama_model_eagle3 of llama-cpp-python 0.3.36."""

from backends.files.gguf_header import GgufHeader
from backends.llamacpp.head_checks.header_facts import Reasons, head_sizes, tensor, width
from backends.llamacpp.head_checks.tapped_layers import tapped_layers

_TAPS = 3


def eagle3_check(head: GgufHeader, target: GgufHeader) -> Reasons:
    """Reasons against an EAGLE-3 head for a model."""
    hidden = head.integer("target_hidden_size")
    if hidden != width(target):
        yield f"it is for models of width {hidden:,}, and this one's is {width(target):,}"
    if len(head.integers("target_layers")) != _TAPS:
        yield f"it does not read {_TAPS} layers"
    yield from tapped_layers(head, target)
    if head.integer("block_count") != 1:
        yield f"it has {head.integer('block_count'):,} layers, and 1 can be run"
    key_size, value_size = head_sizes(head)
    if key_size != value_size:
        yield f"its keys have {key_size:,} numbers and its values {value_size:,}"
    for name in ("token_embd.weight", "output.weight"):
        if tensor(head, name) is None and width(head) != width(target):
            yield f"it has no {name}, and that of the model is of another width"
