"""Reading streamed weights ahead of a pass, by a thread that stays within a window.

While a layer that is held is computed, the disk already reads the next that is not. A reader that
ran further would displace what is still needed. Padded 1.1B body in Q8_0 under 900 MB, 600 of them
held, least of six passes: over 1 token 0.57 s without and 0.51 with it, 16 tokens 0.67 and 0.53,
32 tokens 0.89 and 0.75, 64 tokens 1.26 and 1.15. Windows of 32 and 110 MB gained less or the same.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from backends.streaming import file_cache
from backends.streaming.lock_plan import LockPlan
from backends.streaming.mapped_file import MappedFile
from backends.streaming.weight_layout import Role

_PIECE = 512 << 10
"""Read at once: of a longer request, Linux reads as much as the disk takes in one."""

_LEAST_WINDOW = 64 << 20


@dataclass(frozen=True, slots=True)
class _Piece:
    """A range to read for a layer; before counts the bytes that stream before it in a pass."""

    layer: int
    before: int
    file: int
    offset: int
    size: int


class Readahead:
    """Thread that reads what a pass needs next. Closing ends it."""

    def __init__(
        self, files: Sequence[MappedFile], plan: LockPlan, n_layers: int, free_bytes: int
    ) -> None:
        """Start the thread.

        free_bytes: memory beside what is held. The window is the largest layer, at least 64 MB and
        at most half of that.
        """
        self._files = files
        self._pieces = _pieces(plan, n_layers)
        self._before = _bytes_before(self._pieces, n_layers)
        sizes = (end - start for start, end in zip(self._before, self._before[1:], strict=False))
        self._window = min(max(_LEAST_WINDOW, *sizes), free_bytes // 2)
        self._changed = threading.Condition()
        self._layer = self._next = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="readahead", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Read for the next pass from its start. May come before the pass does."""
        with self._changed:
            self._layer = self._next = 0
            self._changed.notify()

    def reach(self, layer: int) -> None:
        """Read for the layers after one that is computed now."""
        with self._changed:
            self._layer = layer
            self._changed.notify()

    def close(self) -> None:
        """End the thread. Safe to call again."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (piece := self._wait()) is not None:
            try:
                file_cache.read_ahead(self._files[piece.file], piece.offset, piece.size)
            except OSError:
                return  # the engine then reads by itself

    def _wait(self) -> _Piece | None:
        """Next piece, once it lies in the window; None after closing."""
        with self._changed:
            while not self._is_closed:
                piece = self._due()
                if piece is not None:
                    self._next += 1
                    return piece
                self._changed.wait()
            return None

    def _due(self) -> _Piece | None:
        pieces = self._pieces
        while self._next < len(pieces) and pieces[self._next].layer < self._layer:
            self._next += 1
        if self._next == len(pieces):
            return None
        piece = pieces[self._next]
        return piece if piece.before < self._before[self._layer] + self._window else None


def _pieces(plan: LockPlan, n_layers: int) -> list[_Piece]:
    """What streams and every pass reads, in the order of a pass."""
    pieces: list[_Piece] = []
    before = 0
    for tensor in plan.streamed:
        if tensor.role == Role.EXPERTS:  # which of them a pass reads, it finds out on its way
            continue
        extent, layer = tensor.extent, n_layers if tensor.layer is None else tensor.layer
        for offset in range(extent.offset, extent.end, _PIECE):
            size = min(_PIECE, extent.end - offset)
            pieces.append(_Piece(layer, before, extent.file, offset, size))
            before += size
    return pieces


def _bytes_before(pieces: Sequence[_Piece], n_layers: int) -> list[int]:
    """Bytes that stream before each layer, before what follows the layers, and in all."""
    of_layer = [0] * (n_layers + 1)
    for piece in pieces:
        of_layer[piece.layer] += piece.size
    return [sum(of_layer[:layer]) for layer in range(n_layers + 2)]
