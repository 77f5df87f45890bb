"""Passes of MLX over a token tree: each node is a sequence of a batch that shares one cache.

A batch gives each node a position and a mask of its own in mlx-lm's models.
"""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import CacheList, KVCache

from backends.base.parent_array import depths
from backends.mlx.caches import WindowKVCache, evaluate, leaves

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
