"""Weights of a model larger than memory: a part is locked, the rest read in every pass."""

from pathlib import Path

from backends.streaming.lock_plan import lock_plan
from backends.streaming.locked_weights import LockedWeights
from backends.streaming.weight_layout import weight_layout


class StreamedWeights:
    """Locks what a budget allows before the engine loads the model, and watches every pass."""

    def __init__(self, path: Path, lock_bytes: int) -> None:
        """Lock up to so many bytes of a model's weights.

        path: its first file.

        Raises:
            ModelError: a file is missing, damaged or cannot be read.
        """
        layout = weight_layout(path)
        plan = lock_plan(layout, lock_bytes)
        self._locked = LockedWeights(layout.files, plan)
        self.locked_bytes = min(self._locked.locked_bytes, plan.locked_bytes)
        self.read_bytes_per_token = max(
            layout.bytes_per_token - self.locked_bytes, plan.read_bytes_per_token
        )
        """Bytes read from disk for one token, if only what is locked stays in memory."""

    @property
    def refusal(self) -> str:
        """Why less is locked than was planned, as the rest of a sentence; "" if all is."""
        return self._locked.refusal

    def before_pass(self) -> None:
        """Check that the files are still what was mapped; let go of locks if others need memory.

        Raises:
            ModelError: a file was changed, or its disk does not answer.
        """
        self._locked.check_files()
        self._locked.relieve()

    def close(self) -> None:
        """Let go of all locks. Safe to call again."""
        self._locked.release()
