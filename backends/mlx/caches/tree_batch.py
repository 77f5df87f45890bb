"""A pass over a tree of tokens: every node is a text of one token, in a batch that shares a cache.

So each has a position of its own, as mlx-lm's models allow for batches, and a mask of its own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import CacheList, KVCache

from backends.base.parent_array import depths
from backends.mlx.caches.layer_caches import evaluate, leaves
from backends.mlx.caches.window_cache import WindowKVCache

_SPREAD = 0.02
"""Of the range of a row of logits, what rounding may make of it at most."""

Run = Callable[[mx.array, Sequence[Any]], mx.array]
"""A pass of the model over tokens, shape (texts, tokens), with caches; logits of the same texts."""


class TreePass:
    """One tree on caches that hold start tokens, until keep says which nodes stay."""

    def __init__(self, caches: Sequence[Any], start: int) -> None:
        self._caches = caches
        self._start = start
        self.parents: list[int] = []
        """Of the nodes lent to so far."""

    def lend(self, parents: Sequence[int]) -> Sequence[Any]:
        """What the model is to be given as its caches, to run these nodes after all before."""
        self.parents.extend(parents)
        nodes = _Nodes(self.parents, len(parents), self._start)
        return [_lent(one, nodes) for one in self._caches]

    def keep(self, path: Sequence[int]) -> None:
        """Make the nodes of a path the next tokens of the caches, and drop every other."""
        start, end = self._start, self._start + len(path)
        moved = list(path) != list(range(len(path)))
        rows = mx.array([start + node for node in path])
        for one in leaves(self._caches):
            if moved:
                one.keys[..., start:end, :] = one.keys[..., rows, :]
                one.values[..., start:end, :] = one.values[..., rows, :]
            one.offset = end


class _Nodes:
    """Where the last count nodes of a tree are, and what they may look at."""

    def __init__(self, parents: Sequence[int], count: int, start: int) -> None:
        sees = np.eye(len(parents), dtype=bool)
        for node, parent in enumerate(parents):
            if parent >= 0:
                sees[node] |= sees[parent]
        of_nodes = mx.array([start + depth for depth in depths(parents)])
        self.count = count
        self.positions = of_nodes[-count:]
        held = np.ones((count, start), dtype=bool)
        self._sees = mx.array(np.concatenate([held, sees[-count:]], axis=1))
        self._of_keys = mx.concatenate([mx.arange(start), of_nodes])

    def mask(self, window: int | None) -> mx.array:
        """Which keys each may look at, shape (nodes, 1, 1, keys)."""
        seen = self._sees
        if window:
            seen = seen & (self.positions[:, None] < self._of_keys[None] + window)
        return seen[:, None, None]


class _NodeCache:
    """A layer's cache as the texts of a batch see it; what they add is added to it."""

    def __init__(self, cache: Any, nodes: _Nodes) -> None:
        self._cache = cache
        self._nodes = nodes
        self.offset = nodes.positions

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        held = self._cache.update_and_fetch(keys.swapaxes(0, 2), values.swapaxes(0, 2))
        count = self._nodes.count
        keys, values = (mx.broadcast_to(one, (count, *one.shape[1:])) for one in held)
        return keys, values

    def make_mask(
        self, count: int, window_size: int | None = None, return_array: bool = False
    ) -> mx.array:
        del count, return_array  # one token each, and always an array
        own = self._cache.window if isinstance(self._cache, WindowKVCache) else None
        return self._nodes.mask(window_size or own)


def _lent(one: Any, nodes: _Nodes) -> Any:
    if type(one) is CacheList:
        return CacheList(*(_lent(each, nodes) for each in one.caches))
    return _NodeCache(one, nodes)


def tree_refusal(run: Run, caches: Callable[[], Sequence[Any]]) -> str:
    """Why a model cannot run a tree, in words after its name; "" where it was seen to.

    Tried on a few tokens: two branches, which grow, have to give what each gives as a line.
    """
    branches = ([1, 4, 5], [1, 6, 5])
    try:
        held = [_held(run, caches()) for _ in range(3)]
        lines = [run(mx.array([line]), one)[0] for line, one in zip(branches, held, strict=False)]
        tree = TreePass(held[2], _HELD.size)
        above = run(mx.array([[1], [4], [6]]), tree.lend((-1, 0, 0)))
        below = run(mx.array([[5], [5]]), tree.lend((1, 2)))
        rows = mx.concatenate([above, below])[:, 0]
        found = [rows[mx.array(nodes)] for nodes in ((0, 1, 3), (0, 2, 4))]
        off = mx.max(mx.abs(mx.stack(found) - mx.stack(lines)))
        spread = mx.max(lines[0]) - mx.min(lines[0])
        agree = bool((off <= _SPREAD * spread).item())
    except (AttributeError, IndexError, TypeError, ValueError, RuntimeError):
        agree = False
    return "" if agree else "has layers that cannot run the branches of a tree side by side"


_HELD = mx.array([[2, 3, 2, 4, 3, 1]])


def _held(run: Run, caches: Sequence[Any]) -> Sequence[Any]:
    if not all(isinstance(one, KVCache) for one in leaves(caches)):
        raise TypeError("not a row for each token")
    evaluate(caches, run(_HELD, caches))
    return caches
