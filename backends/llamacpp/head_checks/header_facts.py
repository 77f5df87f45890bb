"""Facts of a header that several checks of heads need."""

from collections.abc import Iterator

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
