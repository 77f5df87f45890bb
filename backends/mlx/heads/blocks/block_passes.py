"""Passes of a head that drafts blocks, by MLX."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np

from backends.base import Block, ModelError
from backends.base.hidden_states import Rows
from backends.files.head_folders.block_layout import BlockLayout
from backends.heads.block_rows import after_likeliest, in_lattice, independent
from backends.mlx.heads.blocks.block_drafter import BlockDrafter


class MlxBlockPasses:
    """Layers of a head with caches of their own. A failed pass leaves them without entries."""

    def __init__(self, drafter: BlockDrafter, layout: BlockLayout) -> None:
        self._drafter: BlockDrafter | None = drafter
        self._layout = layout
        self._caches: list[Any] = drafter.make_cache()
        self._first = 0
        """Position of the first entry."""

    def inject(self, start: int, rows: Rows) -> None:
        """Only begun here: the next block's pass waits for it."""
        drafter = self._opened()
        if self._entries == 0:
            self._first = start
        assert start == self._first + self._entries, "entries have no gaps"
        with self._guarded():
            drafter.inject(mx.array(rows), self._caches)
            mx.async_eval([(cache.keys, cache.values) for cache in self._caches])

    def remove(self, length: int) -> None:
        surplus = self._entries - max(length - self._first, 0)
        for cache in self._caches if surplus > 0 else ():
            cache.trim(surplus)

    def draft(self, start: int, known: Sequence[int], count: int) -> Block:
        drafter, layout = self._opened(), self._layout
        assert self._entries in (0, start - self._first), "a block follows the entries"
        masks = count - 1 if layout.from_last else count
        block = mx.array([*known, *[layout.mask] * masks])
        with self._guarded():
            states = drafter.states(drafter.embedded(block), self._caches)[-count:]
            if layout.selector is not None:
                lattice = _on_host(drafter.lattice(states, known[-1]))
                return in_lattice(lattice, layout.selector.candidates, layout.n_vocab)
            if layout.markov_rank:
                return after_likeliest(_on_host(drafter.chained(states, known[-1])))
            return independent(_on_host(drafter.logits(states)))

    @property
    def _entries(self) -> int:
        return self._caches[0].offset

    @contextmanager
    def _guarded(self) -> Generator[None]:
        try:
            yield
        except (RuntimeError, ValueError) as error:
            self._caches = self._opened().make_cache()
            raise ModelError("the head could not draft", str(error)) from error

    def _opened(self) -> BlockDrafter:
        assert self._drafter is not None, "the context is closed"
        return self._drafter

    def close(self) -> None:
        self._drafter = None
        self._caches.clear()
        mx.clear_cache()


def _on_host(rows: mx.array) -> Rows:
    """Copy of float32 rows, which are computed here."""
    return np.array(rows, np.float32)
