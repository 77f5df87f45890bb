"""Caches of a model's layers, rolled back where that is possible, and trees on them."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

import json
import math
import struct
from collections.abc import Callable, Iterator, Sequence
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
from backends.base.parent_array import depths


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


# Passes of MLX over a token tree: each node is a sequence of a batch that shares one cache.
#
# A batch gives each node a position and a mask of its own in mlx-lm's models.

_SPREAD = 0.02
"""Largest rounding difference, relative to the range of a row of logits."""

Run = Callable[[mx.array, Sequence[Any]], mx.array]
"""Pass of the model over tokens, shape (sequences, tokens), with caches; returns logits."""


class TreePass:
    """One uncommitted tree on caches that hold start tokens."""

    def __init__(self, caches: Sequence[Any], start: int) -> None:
        self._caches = caches
        self._start = start
        self.parents: list[int] = []
        """Parents of the nodes run so far."""

    def lend(self, parents: Sequence[int]) -> Sequence[Any]:
        """Caches for the model to run these nodes with, after all earlier ones."""
        self.parents.extend(parents)
        nodes = _Nodes(self.parents, len(parents), self._start)
        return [_node_cache(cache, nodes) for cache in self._caches]

    def keep(self, path: Sequence[int]) -> None:
        """Append a path to the caches and drop the other nodes."""
        start, end = self._start, self._start + len(path)
        moved = list(path) != list(range(len(path)))
        rows = mx.array([start + node for node in path])
        for cache in leaves(self._caches):
            if moved:
                cache.keys[..., start:end, :] = cache.keys[..., rows, :]
                cache.values[..., start:end, :] = cache.values[..., rows, :]
            cache.offset = end


class _Nodes:
    """Positions of the last count nodes of a tree, and the keys they attend to."""

    def __init__(self, parents: Sequence[int], count: int, start: int) -> None:
        sees = np.eye(len(parents), dtype=bool)
        for node, parent in enumerate(parents):
            if parent >= 0:
                sees[node] |= sees[parent]
        of_nodes = mx.array([start + depth for depth in depths(parents)])
        self.count = count
        self.positions = of_nodes[-count:]
        context = np.ones((count, start), dtype=bool)
        self._sees = mx.array(np.concatenate([context, sees[-count:]], axis=1))
        self._of_keys = mx.concatenate([mx.arange(start), of_nodes])

    def mask(self, window: int | None) -> mx.array:
        seen = self._sees
        if window:
            seen = seen & (self.positions[:, None] < self._of_keys[None] + window)
        return seen[:, None, None]


class _NodeCache:
    """Layer cache as each sequence of the batch sees it; new keys and values enter the cache."""

    def __init__(self, cache: Any, nodes: _Nodes) -> None:
        self._cache = cache
        self._nodes = nodes
        self.offset = nodes.positions

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        held = self._cache.update_and_fetch(keys.swapaxes(0, 2), values.swapaxes(0, 2))
        count = self._nodes.count
        keys, values = (mx.broadcast_to(array, (count, *array.shape[1:])) for array in held)
        return keys, values

    def make_mask(
        self, count: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array:
        del count, return_array  # one token per sequence, and always an array
        own = self._cache.window if isinstance(self._cache, WindowKVCache) else None
        return self._nodes.mask(window_size or own)


def _node_cache(cache: Any, nodes: _Nodes) -> Any:
    if type(cache) is CacheList:
        return CacheList(*(_node_cache(inner, nodes) for inner in cache.caches))
    return _NodeCache(cache, nodes)


def tree_refusal(run: Run, caches: Callable[[], Sequence[Any]]) -> str:
    """Why a model cannot run a tree, as the rest of a sentence after its name; "" if it can.

    Tested on a few tokens: two growing branches must give the logits of two separate lines.
    """
    branches = ([1, 4, 5], [1, 6, 5])
    try:
        *linear, shared = (_with_context(run, caches()) for _ in range(3))
        lines = [
            run(mx.array([line]), cache)[0] for line, cache in zip(branches, linear, strict=True)
        ]
        tree = TreePass(shared, _CONTEXT.size)
        above = run(mx.array([[1], [4], [6]]), tree.lend((-1, 0, 0)))
        below = run(mx.array([[5], [5]]), tree.lend((1, 2)))
        rows = mx.concatenate([above, below])[:, 0]
        paths = [rows[mx.array(nodes)] for nodes in ((0, 1, 3), (0, 2, 4))]
        off = mx.max(mx.abs(mx.stack(paths) - mx.stack(lines)))
        spread = mx.max(lines[0]) - mx.min(lines[0])
        agree = bool((off <= _SPREAD * spread).item())
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
        agree = False
    return "" if agree else "has layers that cannot run the branches of a tree side by side"


_CONTEXT = mx.array([[2, 3, 2, 4, 3, 1]])


def _with_context(run: Run, caches: Sequence[Any]) -> Sequence[Any]:
    if not all(isinstance(cache, KVCache) for cache in leaves(caches)):
        raise TypeError("not a row for each token")
    evaluate(caches, run(_CONTEXT, caches))
    return caches
