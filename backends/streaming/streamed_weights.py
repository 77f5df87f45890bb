"""Weights of a model larger than memory: a part is held, the rest is read in every pass."""

from contextlib import ExitStack
from pathlib import Path

from backends.hardware.host import available_memory
from backends.streaming import file_cache
from backends.streaming.drop_behind import DropBehind
from backends.streaming.lock_plan import lock_plan
from backends.streaming.locked_weights import LockedWeights
from backends.streaming.mapped_file import MappedFile
from backends.streaming.pass_position import PassPosition
from backends.streaming.readahead import Readahead
from backends.streaming.weight_layout import weight_layout


class StreamedWeights:
    """Locks what a budget allows before an engine maps the files, and follows its passes."""

    def __init__(self, path: Path, lock_bytes: int) -> None:
        """Lock up to so many bytes of a model's weights.

        path: its first file.

        Raises:
            ModelError: a file is missing, damaged or cannot be read.
        """
        self._layout = weight_layout(path)
        self._plan = lock_plan(self._layout, lock_bytes)
        with ExitStack() as stack:
            self._files = [MappedFile(file, stack) for file in self._layout.files]
            self._closing = stack.pop_all()
        self._locked = LockedWeights(self._files, self._plan)
        self._position = PassPosition(self._layout.n_layers)
        self._drop: DropBehind | None = None
        self._readahead: Readahead | None = None

    @property
    def locked_bytes(self) -> int:
        """Bytes of weights that are locked in memory now."""
        return min(self._locked.locked_bytes, self._plan.locked_bytes)

    @property
    def read_bytes_per_token(self) -> int:
        """Bytes read from disk for one token, as far as it is planned what stays in memory."""
        if file_cache.CAN_DROP:  # what is held then stays without locks, too
            return self._plan.read_bytes_per_token
        return self._plan.read_bytes_per_token + self._plan.locked_bytes - self.locked_bytes

    @property
    def refusal(self) -> str:
        """Why less is locked than was planned, as the rest of a sentence; "" if all is."""
        return self._locked.refusal

    def hold(self, lock_bytes: int) -> None:
        """Lock up to so many bytes from now on. Not during a pass."""
        plan = lock_plan(self._layout, lock_bytes)
        if plan == self._plan:
            return
        self._plan = plan
        self._locked.hold(plan)
        if self._readahead is not None:
            self._readahead.close()
        self._drop = self._readahead = None
        self.follow()

    def follow(self) -> None:
        """Follow passes from now on: the engine has mapped the files, and read them while loading.

        What streams is dropped then, where the system allows that, and read ahead of each pass.
        """
        if not self._plan.streamed:
            return
        n_layers = self._layout.n_layers
        if file_cache.CAN_DROP:
            self._drop = DropBehind(self._files, self._plan, n_layers)
            self._drop.end()
        self._readahead = Readahead(self._files, self._plan, n_layers, available_memory())

    def begin_pass(self) -> None:
        """Check the files, let go of locks if other programs need memory, and follow a pass.

        Raises:
            ModelError: a file was changed, or its disk does not answer.
        """
        for file in self._files:
            file.check()
        self._locked.relieve()
        self._position.begin()
        if self._drop is not None:
            self._drop.begin()

    def advance(self) -> None:
        """Count an operation of the pass."""
        if not self._position.advance():
            return
        if self._readahead is not None:
            self._readahead.reach(self._position.layer)
        if self._drop is not None:
            self._drop.reach(self._position.layer)

    def end_pass(self, *, is_whole: bool) -> None:
        """Drop what a pass has used last, and start reading for the next one.

        is_whole: whether it ran to its end.
        """
        if is_whole:
            self._position.end()
        if self._drop is not None:
            self._drop.end()
        if self._readahead is not None:
            self._readahead.begin()

    def close(self) -> None:
        """Let go of all weights and files. Safe to call again."""
        if self._readahead is not None:
            self._readahead.close()
        self._locked.release()
        self._drop = self._readahead = None
        self._closing.close()
