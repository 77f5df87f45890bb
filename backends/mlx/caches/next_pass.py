"""The pass after this one, made ready while this one is computed."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx


class NextPass:
    """A pass over one token whose number is not known yet; nothing of it is computed.

    Describing a pass to MLX takes Python as long as some tokens in a hundred: between two passes
    the device would stand idle for it. If another pass is wanted after all, this one is dropped,
    and its caches are as they were.
    """

    def __init__(
        self, caches: Iterable[Any], token: mx.array, run: Callable[[mx.array], mx.array]
    ) -> None:
        # Copies of arrays are names: an array assigned to in place keeps what its copies have.
        self._before = [
            (one, copy.copy(one.keys), copy.copy(one.values), one.offset) for one in caches
        ]
        self._token = token
        self._logits = run(token)

    def take(self, token: int) -> mx.array | None:
        """Its logits, shape (1, n_vocab), if it is over this token; else it is dropped."""
        if self._token.item() != token:
            self.drop()
            return None
        self._before.clear()  # else the device would copy each cache to write a token into it
        return self._logits

    def drop(self) -> None:
        """Leave the caches as before it."""
        for one, keys, values, offset in self._before:
            one.keys, one.values, one.offset = keys, values, offset
        self._before.clear()
