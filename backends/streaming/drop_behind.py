"""Dropping streamed weights from memory once a pass has used them, so that they displace nothing.

Otherwise the system drops, of all weights, those that were used least recently: of a file that is
read round and round and does not fit, it then keeps nothing. Weights to be held stay in memory
even where locks are refused, other programs keep theirs, and a pass spends no time on making room:
of the padded 1.1B body in Q8_0 under a limit of 900 MB, 600 of them held, a pass over one token
took 0.83 s without either, 0.50 with locks, 0.55 with this, 0.49 with both; processor time fell
from 0.60 s with locks alone to 0.30. Dropping takes 0.1 s of processor time in a pass, so a thread
of its own does it while the engine computes.

Experts are dropped as well, though some are chosen again soon. With the file and limit of
expert_reader, passes over 1, 4 and 16 tokens took (least of 15, two busy cores, load 12 to 14):
dropped 0.12, 0.22, 0.76 s, left to the system 0.12, 0.97, 1.02, and marked cold (MADV_COLD) 0.20,
0.97, 1.41, though these read 42 and 48 MB for a token instead of 81: making room in the middle of a
pass takes longer than reading again. A cache of those chosen last, of 102 MB, read 56 MB for a
token and took as long as dropping.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from queue import Queue
from typing import TYPE_CHECKING

from backends.streaming.file_cache import CacheDropper
from backends.streaming.lock_plan import LockPlan
from backends.streaming.mapped_file import MappedFile

if TYPE_CHECKING:
    from backends.streaming.weight_layout import Extent


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
        self._due: Queue[Extent | None] = Queue()
        """What to drop next; None ends the thread."""
        self._thread = threading.Thread(target=self._run, name="drop-behind", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Start with the first layer."""
        self._dropped = 0

    def reach(self, layer: int) -> None:
        """Drop the layers before the one just computed, which may still be in use."""
        self._drop_before(layer - 1)

    def end(self) -> None:
        """Drop what is left."""
        self._drop_before(len(self._by_layer))

    def wait(self) -> None:
        """Wait until all that is due has been dropped."""
        self._due.join()

    def close(self) -> None:
        """Drop what is due, and end the thread. To be called before the files are closed."""
        self._due.put(None)
        self._thread.join()

    def _drop_before(self, layer: int) -> None:
        while self._dropped < layer:
            for extent in self._by_layer[self._dropped]:
                self._due.put(extent)
            self._dropped += 1

    def _run(self) -> None:
        while (extent := self._due.get()) is not None:
            with suppress(OSError):  # the system then makes room by itself
                self._droppers[extent.file].drop(extent)
            self._due.task_done()
