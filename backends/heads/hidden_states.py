"""Hidden states of a model at the positions of its context, for a head to read later."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
"""One row per token, shape (tokens, width)."""

ReadRows = Callable[[int], Rows]
"""Rows that the last pass over so many tokens left, none if it left none; may be a view."""

FINAL = -1
"""Stands among layers for what the output layer reads, of passes whose tokens all leave logits."""


class HiddenStates:
    """Copies of what passes leave for a head, in step with the tokens of a context.

    Those of tokens that were held before, or that a restored state brought, are unknown. Of very
    long texts the oldest are forgotten.
    """

    def __init__(self, read: ReadRows, width: int, most: int, layers: Sequence[int] = ()) -> None:
        """read: gets rows of the last pass, of this width. most: rows kept, at least of a pass.

        layers: of the model, whose inputs the rows are; none for what leaves the last one.
        """
        self._read = read
        self.layers = tuple(layers)
        self._most = most
        self.width = width
        self._rows: list[NDArray[np.float32]] = []
        """The row of each known position; views of the copies of passes."""
        self._nodes: list[Rows] = []
        self.first: int = 0
        """First position whose row is known."""
        self.end: int = 0
        """Position after the last one whose row is known."""

    def begin(self, position: int) -> None:
        """Start with a context that holds tokens up to a position, of which nothing is known."""
        self._rows.clear()
        self.first = self.end = position

    def passed(self, start: int, count: int) -> None:
        """Copy the rows of a pass over count tokens at positions from start on.

        Where there are none, or no memory for them, no row is known any more: the reply goes on.
        """
        with suppress(MemoryError):
            rows = self._read(count).copy()
            if len(rows) == count:
                self._append(start, rows)
                return
        self.begin(start + count)

    def passed_nodes(self, count: int) -> None:
        """Copy the rows of a pass over count nodes of an uncommitted tree."""
        self._nodes.append(self._read(count).copy())

    def committed(self, start: int, path: Sequence[int]) -> None:
        """Keep the rows of a path of the tree, at positions from start on."""
        if path:
            self._append(start, np.vstack(self._nodes)[list(path)])
        self._nodes.clear()

    def cut(self, length: int) -> None:
        """Forget positions from length on."""
        self.end = min(self.end, length)
        self.first = min(self.first, self.end)
        del self._rows[self.end - self.first :]

    def rows(self, start: int, end: int) -> Rows:
        """Rows of known positions, of one at least."""
        assert self.first <= start < end <= self.end
        known = self._rows[start - self.first : end - self.first]
        return np.concatenate(known).reshape(-1, self.width)

    def before(self, start: int, count: int) -> Rows:
        """Rows of the positions before each of count tokens from start on; zeros if unknown."""
        rows = np.zeros((count, self.width), np.float32)
        first = max(start - 1, self.first)
        end = min(start - 1 + count, self.end)
        if first < end:
            rows[first - (start - 1) : end - (start - 1)] = self.rows(first, end)
        return rows

    def known_before(self, start: int, count: int, *, otherwise: bool) -> int:
        """Number of tokens from start on to be run with the rows of the positions before them.

        All of them where no row is known, as while costs are measured. otherwise: whether there is
        something else to run those with that follow on tokens without a row.
        """
        if self.end == 0:
            return count
        if self.end >= start:
            return min(count, self.end + 1 - start)
        return 0 if otherwise else count

    def release(self, position: int) -> None:
        """Forget what is before a position, as its head has read it."""
        position = max(self.first, min(position, self.end))
        del self._rows[: position - self.first]
        self.first = position

    def _append(self, start: int, rows: Rows) -> None:
        if start != self.end:  # what lies between is unknown
            self.begin(start)
        self._rows.extend(rows)
        self.end += len(rows)
        self.release(self.end - self._most)
