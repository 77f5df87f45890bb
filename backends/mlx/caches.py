"""Caches of a model's layers, created so that they can be rolled back if possible."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import json
import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)

from backends.base import CacheState, ModelError, Rollback


class WindowKVCache(KVCache):
    """Keeps every token, whereas mlx-lm's RotatingKVCache overwrites those before the window.

    Only the mask applies the window, so that drafted tokens past it can be dropped.
    """

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def make_mask(
        self, count: int, window_size: int | None = None, return_array: bool = False
    ) -> Any:
        """Mask for count new tokens: None for all keys, "causal" for all earlier ones.

        window_size: the layer's own if the architecture gives it, otherwise the cache's.
        """
        window = window_size or self.window
        if self.offset + count > window or (return_array and count > 1):
            return create_causal_mask(count, self.offset, window_size=window)
        return "causal" if count > 1 else None


_LENGTH = struct.Struct("<Q")
_DTYPES = {str(dtype).removeprefix("mlx.core."): dtype for dtype in (
    mx.float32, mx.float16, mx.bfloat16, mx.uint32, mx.int32, mx.uint8, mx.int8, mx.bool_,
)}  # fmt: skip


def make_caches(model: nn.Module) -> list[Any]:
    """Create empty caches, one per layer (or as the architecture requires).

    A sliding-window layer gets a cache of every token, unless the model could not be rolled back
    even so.
    """
    made: list[Any] = make_prompt_cache(model)
    whole = [_whole(cache) for cache in made]
    return made if rollback_refusal(whole) else whole


def rollback_of(caches: Sequence[Any]) -> Rollback:
    """How far caches can be rolled back: a running state only into the last pass."""
    if rollback_refusal(caches):
        return Rollback.NONE
    has_state = any(type(cache) is ArraysCache for cache in leaves(caches))
    return Rollback.BOUNDED if has_state else Rollback.ANY


def rollback_refusal(caches: Sequence[Any]) -> str:
    """Why caches cannot be rolled back at all, to follow the model's name; "" if they can."""
    kinds = {type(cache) for cache in leaves(caches)} - {KVCache, WindowKVCache, ArraysCache}
    if not kinds:
        return ""
    if kinds <= {RotatingKVCache, ChunkedKVCache}:
        return "keeps only the latest tokens, and cannot return to earlier ones"
    return "has a kind of cache that cannot forget rejected tokens"


def _whole(cache: Any) -> Any:
    """Replacement that keeps every token, for a rotating cache."""
    if type(cache) is CacheList:
        return CacheList(*map(_whole, cache.caches))
    is_rotating = type(cache) is RotatingKVCache and cache.keep == 0
    return WindowKVCache(cache.max_size) if is_rotating else cache


def leaves(caches: Sequence[Any]) -> Iterator[Any]:
    """All caches, including each of a layer with several."""
    for cache in caches:
        if type(cache) is CacheList:
            yield from leaves(cache.caches)
        else:
            yield cache


def lengths(caches: Sequence[Any]) -> set[int]:
    """Numbers of tokens held, of caches that count them: one number if the caches agree."""
    return {cache.offset for cache in leaves(caches) if hasattr(cache, "offset")}


def bytes_per_token(caches: Sequence[Any]) -> int:
    """Bytes of one more token, given caches that hold some."""
    return sum(
        cache.nbytes // cache.keys.shape[2]
        for cache in leaves(caches)
        if isinstance(cache, KVCache) and cache.keys is not None
    )


def evaluate(caches: Sequence[Any], *arrays: mx.array) -> None:
    mx.eval([cache.state for cache in leaves(caches)], *arrays)


def pack(caches: Sequence[Any]) -> CacheState:
    """Serialize caches: a description, then the bytes of every array."""
    parts: list[Any] = []
    header = json.dumps([_described(_state(cache), parts) for cache in leaves(caches)]).encode()
    whole = [_LENGTH.pack(len(header)), header, *parts]
    return np.concatenate([np.frombuffer(part, dtype=np.uint8) for part in whole])


def _described(value: Any, parts: list[Any]) -> Any:
    """Description of a value for unpack; the bytes of arrays are appended to parts."""
    if isinstance(value, mx.array):
        if value.size:
            parts.append(np.array(mx.contiguous(value).reshape(-1).view(mx.uint8), copy=False))
        return {"dtype": str(value.dtype).removeprefix("mlx.core."), "shape": value.shape}
    if isinstance(value, list | tuple):
        return [_described(item, parts) for item in cast("Sequence[Any]", value)]
    return value


def unpack(caches: Sequence[Any], packed: CacheState) -> None:
    """Fill empty caches from a serialized state."""
    try:
        (length,) = _LENGTH.unpack(packed[: _LENGTH.size].tobytes())
        begin = _LENGTH.size + length
        described = json.loads(packed[_LENGTH.size : begin].tobytes())
        rest = packed[begin:]
        for cache, entry in zip(leaves(caches), described, strict=True):
            cache.state, rest = _filled(entry, rest)
        if rest.size:
            raise ValueError("it has another length")
    except (AttributeError, ValueError, KeyError, TypeError, struct.error) as error:
        raise ModelError("the saved cache cannot be used", str(error)) from error


def _filled(described: Any, packed: CacheState) -> tuple[Any, CacheState]:
    """Value of a description, with arrays from the front of packed, and the remaining bytes."""
    if isinstance(described, dict):
        entry = cast("dict[str, Any]", described)
        dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
        size = dtype.size * math.prod(shape)
        return mx.array(packed[:size]).view(dtype).reshape(shape), packed[size:]
    if isinstance(described, list):
        values: list[Any] = []
        for item in cast("list[Any]", described):
            value, packed = _filled(item, packed)
            values.append(value)
        return values, packed
    return described, packed


def _state(cache: Any) -> Any:
    if isinstance(cache, KVCache) and cache.keys is not None and cache.values is not None:
        used = cache.offset
        return cache.keys[..., :used, :], cache.values[..., :used, :], used
    return cache.state
