"""Running states of caches at one moment, held by reference."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from backends.mlx.caches.layer_caches import leaves


class HeldStates:
    """Arrays of every cache with a running state.

    An array is never changed by a pass, which puts another in its place: holding it copies nothing.
    """

    def __init__(self, caches: Sequence[Any]) -> None:
        self._held = [
            (cache, [copy.copy(array) for array in cache.cache])
            for cache in leaves(caches)
            if type(cache) is ArraysCache
        ]

    @property
    def nbytes(self) -> int:
        return sum(
            array.nbytes for _, arrays in self._held for array in arrays if array is not None
        )

    @property
    def caches(self) -> list[ArraysCache]:
        return [cache for cache, _ in self._held]

    def put_back(self) -> None:
        for cache, arrays in self._held:
            cache.cache = [copy.copy(array) for array in arrays]

    def compute(self) -> None:
        """Compute the arrays, so that they hold neither the passes that give them nor more memory.

        Many are the end of an array of a whole pass, whose memory they would keep.
        """
        self._held = [
            (cache, [None if array is None else mx.contiguous(array) for array in arrays])
            for cache, arrays in self._held
        ]
        mx.eval(self._arrays)

    @property
    def _arrays(self) -> list[mx.array]:
        return [array for _, arrays in self._held for array in arrays if array is not None]
