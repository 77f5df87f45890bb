"""Follows a pass through the layers: reads ahead, drops behind, fetches chosen experts."""

import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from backends.streaming import mapped_file
from backends.streaming.mapped_file import CacheDropper, MappedFile
from backends.streaming.weight_plan import Extent, LockPlan, PlacedTensor, Role


class PassPosition:
    """Follows a pass through the layers.

    An engine tells how many operations it has done, not where it is. As layers are alike, the
    share of the operations of the last whole pass gives the layer; in the first it stays unknown.
    """

    def __init__(self, n_layers: int) -> None:
        self._n_layers = n_layers
        self._operations = 0
        self._usual_operations = 0
        """Of the last whole pass; 0 before the first."""
        self._next = sys.maxsize
        """Operations at which the next layer begins."""
        self.layer = 0
        """Layer that is computed; n_layers for what follows the layers."""

    def begin(self) -> None:
        self._operations = self.layer = 0
        self._next = self._next_layer_at()

    def advance(self) -> bool:
        """Count an operation; whether a layer begins with the next one."""
        self._operations += 1
        if self._operations < self._next:
            return False
        self.layer += 1
        self._next = self._next_layer_at()
        return True

    def end(self) -> None:
        self._usual_operations = self._operations

    def _next_layer_at(self) -> int:
        if not self._usual_operations or self.layer == self._n_layers:
            return sys.maxsize
        return -(-self._usual_operations * (self.layer + 1) // self._n_layers)


# Reading streamed weights ahead of a pass, by a thread that stays within a window.
# While a layer that is held is computed, the disk already reads the next that is not. A reader that
# ran further would displace what is still needed. Padded 1.1B body in Q8_0 under 900 MB, 600 of
# them held, least of six passes: over 1 token 0.57 s without and 0.51 with it, 16 tokens 0.67 and
# 0.53, 32 tokens 0.89 and 0.75, 64 tokens 1.26 and 1.15. Windows of 32 and 110 MB gained less or
# the same.

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
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (piece := self._wait()) is not None:
            try:
                mapped_file.read_ahead(self._files[piece.file], piece.offset, piece.size)
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
    of_layer = [0] * (n_layers + 1)
    for piece in pieces:
        of_layer[piece.layer] += piece.size
    return [sum(of_layer[:layer]) for layer in range(n_layers + 2)]


# Dropping streamed weights from memory once a pass has used them, so that they displace nothing.
# Otherwise the system drops, of all weights, those that were used least recently: of a file that is
# read round and round and does not fit, it then keeps nothing. Weights to be held stay in memory
# even where locks are refused, other programs keep theirs, and a pass spends no time on making
# room: of the padded 1.1B body in Q8_0 under a limit of 900 MB, 600 of them held, a pass over one
# token took 0.83 s without either, 0.50 with locks, 0.55 with this, 0.49 with both; processor time
# fell from 0.60 s with locks alone to 0.30. Dropping takes 0.1 s of processor time in a pass, so a
# thread of its own does it while the engine computes.
# Experts are dropped as well, though some are chosen again soon. With the file and limit given
# below for experts, passes over 1, 4 and 16 tokens took (least of 15, two cores, load 12 to 14):
# dropped 0.12, 0.22, 0.76 s, left to the system 0.12, 0.97, 1.02, and marked cold (MADV_COLD) 0.20,
# 0.97, 1.41, though these read 42 and 48 MB for a token instead of 81: making room in the middle of
# a pass takes longer than reading again. A cache of those chosen last, of 102 MB, read 56 MB for a
# token and took as long as dropping.


class DropBehind:
    """Thread that drops the layers behind a pass; one dropped too early is only read again."""

    def __init__(self, files: Sequence[MappedFile], plan: LockPlan, n_layers: int) -> None:
        """Prepare for passes of an engine that has mapped the files already."""
        self._droppers = [CacheDropper(file) for file in files]
        self._by_layer = [
            [one.extent for one in plan.streamed if one.layer == layer]
            for layer in (*range(n_layers), None)
        ]
        self._dropped = 0
        """Layers of this pass that are dropped, or will be."""
        self._thread = ThreadPoolExecutor(1, "drop-behind")
        self._last: Future[None] | None = None

    def begin(self) -> None:
        self._dropped = 0

    def reach(self, layer: int) -> None:
        """Drop the layers before the one just computed, which may still be in use."""
        self._drop_before(layer - 1)

    def end(self) -> None:
        self._drop_before(len(self._by_layer))

    def wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def close(self) -> None:
        """Drop what is due, and end the thread. To be called before the files are closed."""
        self._thread.shutdown()

    def _drop_before(self, layer: int) -> None:
        while self._dropped < layer:
            for extent in self._by_layer[self._dropped]:
                self._last = self._thread.submit(self._drop, extent)
            self._dropped += 1

    def _drop(self, extent: Extent) -> None:
        with suppress(OSError):  # the system then makes room by itself
            self._droppers[extent.file].drop(extent)


# Reading the experts that a layer's router chose, all at once.
# Left alone, the engine waits for one page after another, and what the system reads beside each
# page belongs mostly to experts that nobody chose. A body of 846 MB with 2 of 16 experts under a
# limit of 450 MB, 200 of them held, least of nine passes on two busy cores (load 11 to 16): over 1
# token 0.69 s and 644 MB read without, 0.14 s and 81 MB with this; 4 tokens 1.45 s, 644 MB and 0.35
# s, 203 MB; 16 tokens 1.45 s, 645 MB and 0.86 s, 398 MB.


class ExpertReader:
    """Starts reading the chosen experts of a layer before the engine computes with them."""

    def __init__(
        self, files: Sequence[MappedFile], plan: LockPlan, n_experts: int, free_bytes: int
    ) -> None:
        """Prepare for passes.

        n_experts: of a layer. free_bytes: memory beside what is held; half of it is used, as more
        would displace what was read just before.
        """
        self._files = files
        self._n_experts = n_experts
        self._window = free_bytes // 2
        self._by_layer: dict[int | None, list[PlacedTensor]] = {}
        for tensor in plan.streamed:
            if tensor.role == Role.EXPERTS:
                self._by_layer.setdefault(tensor.layer, []).append(tensor)
        for tensors in self._by_layer.values():
            tensors.sort(key=lambda one: "down" in one.name)  # what is needed last

    def choose(self, layer: int, experts: Iterable[int]) -> None:
        """Start reading experts of a layer, as many as there is room for.

        Raises:
            OSError: the file cannot be read.
        """
        left = self._window
        ascending = sorted(experts)
        for tensor in self._by_layer.get(layer, ()):
            size = tensor.extent.size // self._n_experts
            for expert in ascending:
                left -= size
                if left < 0:
                    return
                offset = tensor.extent.offset + expert * size
                mapped_file.read_ahead(self._files[tensor.extent.file], offset, size)
