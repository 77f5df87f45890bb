"""The tokens of the model that a head with a smaller vocabulary drafts."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from backends.files.safetensors_header import StoredTensor

MAP = "d2t"
"""Tensor with the distance from each of the head's tokens to the model's."""

_INTEGERS = {"I64": "<i8", "I32": "<i4"}


def drafted_tokens(file: Path, tensor: StoredTensor, n_vocab: int) -> NDArray[np.int64]:
    """The model's token of each of the head's, shape (tokens,), all of them different.

    Raises:
        ValueError: they are not, in words.
        OSError: the file cannot be read.
    """
    kind = _INTEGERS.get(tensor.dtype)
    if kind is None or len(tensor.shape) != 1:
        raise ValueError(f"{MAP} is no list of whole numbers")
    distances = np.fromfile(file, kind, tensor.shape[0], offset=tensor.offset).astype(np.int64)
    if len(distances) != tensor.shape[0]:
        raise ValueError(f"{MAP} is cut short")
    if ((distances < -n_vocab) | (distances > n_vocab)).any():  # their sums would wrap around
        raise ValueError(f"{MAP} leads to tokens that are not among its {n_vocab:,}")
    tokens = distances + np.arange(len(distances))
    if ((tokens < 0) | (tokens >= n_vocab)).any():
        raise ValueError(f"{MAP} leads to tokens that are not among its {n_vocab:,}")
    if len(np.unique(tokens)) != len(tokens):
        raise ValueError(f"{MAP} leads to a token twice")
    return tokens
