"""Vectors of a head: those in its file, and the hidden states that it hands out."""

import re

from backends.files.gguf_header import GgufHeader
from backends.llamacpp.head_checks.header_facts import Reasons, width

_FLOAT = 0
"""Number of the type in ggml."""

_VECTOR = re.compile(r"(?:norm(?:_\d)?|layer_output_scale)\.weight$|\.(?:bias|scale)$|_conv_base$")
"""Names of tensors that ggml adds or multiplies by element, which it does with floats alone."""

_GIVEN_BY_TARGET = "gemma4-assistant"
"""The architecture whose heads hand out hidden states of their model's width."""


def sound_vectors(head: GgufHeader) -> Reasons:
    """Reasons against the types and widths of a head's vectors."""
    for tensor in head.tensors:
        if tensor.ggml_type != _FLOAT and _VECTOR.search(tensor.name):
            yield f"tensor {tensor.name[:64]} is not of 32-bit floats"
    out = head.integer("embedding_length_out")
    if head.architecture != _GIVEN_BY_TARGET and out not in (0, width(head)):
        yield f"it hands out hidden states of width {out:,}, and its own is {width(head):,}"
