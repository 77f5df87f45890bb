"""The caches of a model's layers: made so that they can be rolled back, where any can."""

import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.cache import (
    CacheList,
    ChunkedKVCache,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from backends.base import CacheState, ModelError
from backends.mlx.caches.window_cache import WindowKVCache

_LENGTH = struct.Struct("<Q")
_DTYPES = {str(dtype).removeprefix("mlx.core."): dtype for dtype in (
    mx.float32, mx.float16, mx.bfloat16, mx.uint32, mx.int32, mx.uint8, mx.int8, mx.bool_,
)}  # fmt: skip


def make_caches(model: nn.Module) -> list[Any]:
    """One cache a layer (or as the architecture wants it), empty.

    A layer that looks back over a window only gets a cache of every token, unless the model could
    not be rolled back even so.
    """
    made: list[Any] = make_prompt_cache(model)
    whole = [_whole(one) for one in made]
    return made if rollback_refusal(whole) else whole


def rollback_refusal(caches: Sequence[Any]) -> str:
    """Why they cannot forget their last tokens, in words after the model's name; "" if they can."""
    kinds = {type(one) for one in leaves(caches)} - {KVCache, WindowKVCache}
    if not kinds:
        return ""
    if kinds <= {RotatingKVCache, ChunkedKVCache}:
        return "keeps the latest tokens only, and cannot go back to those before"
    return "keeps a running state, which cannot forget rejected tokens"


def _whole(one: Any) -> Any:
    if type(one) is CacheList:
        return CacheList(*map(_whole, one.caches))
    return WindowKVCache(one.max_size) if type(one) is RotatingKVCache and one.keep == 0 else one


def leaves(caches: Sequence[Any]) -> Iterator[Any]:
    """Every cache, those of a layer that has several one by one."""
    for one in caches:
        if type(one) is CacheList:
            yield from leaves(one.caches)
        else:
            yield one


def lengths(caches: Sequence[Any]) -> set[int]:
    """How many tokens they hold, as far as they count them: one number, of caches that agree."""
    return {one.offset for one in leaves(caches) if hasattr(one, "offset")}


def bytes_per_token(caches: Sequence[Any]) -> int:
    """What one more token takes, of caches that hold some."""
    return sum(
        one.nbytes // one.keys.shape[2]
        for one in leaves(caches)
        if isinstance(one, KVCache) and one.keys is not None
    )


def evaluate(caches: Sequence[Any], *arrays: mx.array) -> None:
    """Compute arrays, and what the caches are to hold."""
    mx.eval([one.state for one in leaves(caches)], *arrays)


def pack(caches: Sequence[Any]) -> CacheState:
    """Every array of the caches, byte for byte, after a description of them."""
    parts: list[Any] = []
    header = json.dumps([_described(_state(one), parts) for one in leaves(caches)]).encode()
    whole = [_LENGTH.pack(len(header)), header, *parts]
    return np.concatenate([np.frombuffer(part, dtype=np.uint8) for part in whole])


def _described(value: Any, parts: list[Any]) -> Any:
    """What unpack needs to know of a value; the bytes of arrays are added to parts."""
    if isinstance(value, mx.array):
        if value.size:
            parts.append(np.array(mx.contiguous(value).reshape(-1).view(mx.uint8), copy=False))
        return {"dtype": str(value.dtype).removeprefix("mlx.core."), "shape": value.shape}
    if isinstance(value, list | tuple):
        return [_described(one, parts) for one in cast(Sequence[Any], value)]
    return value


def unpack(caches: Sequence[Any], packed: CacheState) -> None:
    """Fill empty caches with what pack gave.

    Raises:
        ModelError: it is of other caches, or damaged.
    """
    try:
        (length,) = _LENGTH.unpack(packed[: _LENGTH.size].tobytes())
        begin = _LENGTH.size + length
        described = json.loads(packed[_LENGTH.size : begin].tobytes())
        rest = packed[begin:]
        for one, entry in zip(leaves(caches), described, strict=True):
            one.state, rest = _filled(entry, rest)
        if rest.size:
            raise ValueError("its length is another")
    except (AttributeError, ValueError, KeyError, TypeError, struct.error) as error:
        raise ModelError("the saved cache cannot be used", str(error)) from error


def _filled(described: Any, packed: CacheState) -> tuple[Any, CacheState]:
    """A value as it was described, its arrays from the front of packed, and what remains."""
    if isinstance(described, dict):
        entry = cast(dict[str, Any], described)
        dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
        size = dtype.size * math.prod(shape)
        return mx.array(packed[:size]).view(dtype).reshape(shape), packed[size:]
    if isinstance(described, list):
        values: list[Any] = []
        for one in cast(list[Any], described):
            value, packed = _filled(one, packed)
            values.append(value)
        return values, packed
    return described, packed


def _state(one: Any) -> Any:
    """The parts of one cache; of one with a row for each token no more rows than are used."""
    if isinstance(one, KVCache) and one.keys is not None and one.values is not None:
        return one.keys[..., : one.offset, :], one.values[..., : one.offset, :], one.offset
    return one.state
