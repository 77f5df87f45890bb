"""The next pass, prepared while the present one is computed."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx


class NextPass:
    """Lazy pass over one token whose id is not known yet.

    Building the graph of a pass takes Python a few hundredths of a token's time, during which the
    device would be idle. If another pass is needed instead, this one is dropped and its caches are
    restored.
    """

    def __init__(
        self, caches: Iterable[Any], token: mx.array, run: Callable[[mx.array], mx.array]
    ) -> None:
        # Copying an array copies a reference: in-place assignment leaves the copies unchanged.
        self._before = [
            (cache, copy.copy(cache.keys), copy.copy(cache.values), cache.offset)
            for cache in caches
        ]
        self._token = token
        self._logits = run(token)

    def take(self, token: int) -> mx.array | None:
        """Logits, shape (1, n_vocab), if the pass is over this token; otherwise it is dropped."""
        if self._token.item() != token:
            self.drop()
            return None
        self._before.clear()  # otherwise the device would copy each cache to write a token
        return self._logits

    def drop(self) -> None:
        """Restore the caches."""
        for cache, keys, values, offset in self._before:
            cache.keys, cache.values, cache.offset = keys, values, offset
        self._before.clear()
