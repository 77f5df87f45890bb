"""Heads that read the last state of any model: Medusa (arXiv 2401.10774), Hydra (arXiv 2402.05109).

Each is a small network over the state that the model's output layer read last, and the embeddings
of the tokens since then (none for Medusa). specchat trains and runs these; the layout is its own.
"""

from dataclasses import dataclass
from math import prod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from backends.files.head_folders.shapes import MAP, Tensors
from backends.files.head_folders.stored_head import Settings, StoredHead

LAST_STATE = "last_state"
"""Its model_type."""

_MEDUSA, _HYDRA = "medusa", "hydra"

_MOST_HEADS = 16
_WEIGHT = ".weight"


@dataclass(frozen=True, slots=True)
class LastStateLayout:
    """Shapes of a head.

    names: of stored tensors by common names. width: of the model's states and its own. numbers,
    draw_numbers: all weights, and those read to draft a token.
    """

    names: dict[str, str]
    width: int
    feed_forward: int
    heads: int
    n_vocab: int
    numbers: int
    draw_numbers: int
    epsilon: float


def last_state_layout(head: StoredHead) -> LastStateLayout:
    """The layout of a head in a folder."""
    settings, tensors = head.settings, Tensors(head, _common)
    method = settings.text("method")
    if method not in (_MEDUSA, _HYDRA):
        raise ValueError(f"method in its config.json is {method[:40]!r}, which is not known")
    heads = settings.count("num_heads", 1)
    if not 0 < heads <= _MOST_HEADS:
        raise ValueError(f"num_heads in its config.json is {heads:,}")
    width, feed_forward = tensors.matrix("heads.0.down")
    for number in range(heads):
        name, rows = f"heads.{number}", 1 if method == _MEDUSA else 2 + number
        tensors.require(f"{name}.input", width, rows * width)
        tensors.require(f"{name}.gate", feed_forward, width)
        tensors.require(f"{name}.up", feed_forward, width)
        tensors.require(f"{name}.down", width, feed_forward)
        tensors.vector(f"{name}.norm{_WEIGHT}", width)
        tensors.vector(f"{name}.output_norm{_WEIGHT}", width)
    n_vocab = _vocabulary(settings, tensors, width)
    tensors.refuse_others()
    sizes = {name: prod(one.shape) for name, one in tensors.by_name.items() if name != MAP}
    output = sizes["lm_head.weight"]
    return LastStateLayout(
        names=tensors.names,
        width=width,
        feed_forward=feed_forward,
        heads=heads,
        n_vocab=n_vocab,
        numbers=sum(sizes.values()),
        draw_numbers=output + (sum(sizes.values()) - output) // heads,
        epsilon=settings.positive("rms_norm_eps", 1e-5),
    )


def _common(name: str) -> str:
    return name if name == MAP or name.endswith(_WEIGHT) else name + _WEIGHT


def _vocabulary(settings: Settings, tensors: Tensors, width: int) -> int:
    """Tokens of the model; the output may know a part of them."""
    n_drafted, _ = tensors.matrix("lm_head")
    tensors.require("lm_head", n_drafted, width)
    if settings.count("draft_vocab_size", n_drafted) != n_drafted:
        raise ValueError(f"its output knows {n_drafted:,} tokens (draft_vocab_size)")
    n_vocab, listed = settings.count("vocab_size"), tensors.by_name.get(MAP)
    if (listed.shape if listed else (n_vocab,)) != (n_drafted,) or n_drafted > n_vocab:
        raise ValueError(f"it drafts {n_drafted:,} of {n_vocab:,} tokens; {MAP} lists others")
    return n_vocab


_STORED = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def read_floats(head: StoredHead, names: dict[str, str]) -> dict[str, NDArray[np.float32]]:
    """Tensors of floats by common name, as names has the stored ones."""
    found: dict[str, NDArray[np.float32]] = {}
    for name, stored in names.items():
        tensor = head.tensors[stored]
        values = np.fromfile(
            head.files[stored],
            _STORED[tensor.dtype],
            int(np.prod(tensor.shape)),
            offset=tensor.offset,
        )
        if tensor.dtype == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        found[name] = cast("NDArray[np.float32]", values.astype(np.float32).reshape(tensor.shape))
    return found
