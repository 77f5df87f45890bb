"""Rotation of a draft head's queries and keys."""

from backends.files.gguf_header import GgufHeader
from backends.llamacpp.head_checks.header_facts import Reasons

_WITHOUT = "nemotron_h_moe"
"""The architecture whose prediction layers rotate nothing."""


def some_rotation(head: GgufHeader) -> Reasons:
    """Reasons against a head that would rotate nothing, over which llama.cpp hangs."""
    if head.architecture != _WITHOUT and head.integer("rope.dimension_count", 1) == 0:
        yield "it rotates 0 numbers of its queries and keys"
