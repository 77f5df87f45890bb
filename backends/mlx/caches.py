"""The caches of a model's layers: made so that they can be rolled back, where any can."""

import json
import struct
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import KVCache, RotatingKVCache, make_prompt_cache

from backends.base import CacheState, ModelError

_LENGTH = struct.Struct("<Q")
_DTYPES = {str(dtype).removeprefix("mlx.core."): dtype for dtype in (
    mx.float32, mx.float16, mx.bfloat16, mx.uint32, mx.int32, mx.uint8, mx.int8, mx.bool_,
)}  # fmt: skip


def make_caches(model: nn.Module) -> list[Any]:
    """One cache a layer (or as the architecture wants it), empty.

    A layer that looks back over a window only gets a cache of every token as well: the window is
    then kept by the mask, and what was drafted can be forgotten past the window too.
    """
    made: list[Any] = make_prompt_cache(model)
    return [
        KVCache() if isinstance(one, RotatingKVCache) and one.keep == 0 else one for one in made
    ]


def running_state(caches: Sequence[Any]) -> str:
    """The kind of the first cache that cannot be rolled back, "" where all can."""
    for one in caches:
        if type(one) is not KVCache:
            return type(one).__name__
    return ""


def bytes_per_token(caches: Sequence[Any]) -> int:
    """What one more token takes, of caches that hold some."""
    return sum(
        one.nbytes // one.keys.shape[2]
        for one in caches
        if isinstance(one, KVCache) and one.keys is not None
    )


def evaluate(caches: Sequence[Any], *arrays: mx.array) -> None:
    """Compute arrays, and what the caches are to hold."""
    mx.eval([one.state for one in caches], *arrays)


def pack(caches: Sequence[Any]) -> CacheState:
    """Every array of the caches, byte for byte, after a description of them."""
    described: list[list[Any]] = []
    parts: list[Any] = []
    for one in caches:
        entries: list[Any] = []
        for value in _state(one):
            if isinstance(value, mx.array):
                entries.append([str(value.dtype).removeprefix("mlx.core."), list(value.shape)])
                parts.append(np.array(mx.contiguous(value).reshape(-1).view(mx.uint8), copy=False))
            else:
                entries.append(value)
        described.append(entries)
    header = json.dumps(described).encode()
    whole = [_LENGTH.pack(len(header)), header, *parts]
    return np.concatenate([np.frombuffer(part, dtype=np.uint8) for part in whole])


def unpack(caches: Sequence[Any], packed: CacheState) -> None:
    """Fill empty caches with what pack gave.

    Raises:
        ModelError: it is of other caches, or damaged.
    """
    try:
        (length,) = _LENGTH.unpack(packed[: _LENGTH.size].tobytes())
        begin = _LENGTH.size + length
        described = json.loads(packed[_LENGTH.size : begin].tobytes())
        for one, entries in zip(caches, described, strict=True):
            values: list[Any] = []
            for entry in entries:
                if not isinstance(entry, list):
                    values.append(entry)
                    continue
                dtype, shape = _DTYPES[entry[0]], entry[1]
                end = begin + dtype.size * int(np.prod(shape))
                raw = mx.array(packed[begin:end])
                values.append(raw.view(dtype).reshape(shape))
                begin = end
            one.state = tuple(values) if isinstance(one, KVCache) else values
        if begin != packed.size:
            raise ValueError("its length is another")
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise ModelError("the saved cache cannot be used", str(error)) from error


def _state(one: Any) -> Sequence[Any]:
    """The parts of one cache; of one with a row for each token no more rows than are used."""
    if isinstance(one, KVCache):
        keys, values = one.keys, one.values
        if keys is None or values is None:
            return (None, None, 0)
        return (keys[..., : one.offset, :], values[..., : one.offset, :], one.offset)
    return list(one.state)
