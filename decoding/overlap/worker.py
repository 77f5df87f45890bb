"""Contract of what runs a drafter's passes beside the target's."""

from collections.abc import Iterator
from typing import Protocol


class Worker(Protocol):
    """Runs the passes of one drafter, one round of them at a time."""

    def start(self, passes: Iterator[object]) -> None:
        """Run passes one after another until the last one, or until stop.

        The round before must have been stopped.
        """
        ...

    def stop(self) -> None:
        """Start no further pass, and return once the present one has ended.

        Raises what a pass of the round raised.
        """
        ...

    def close(self) -> None:
        """Stop for good, whatever a pass raised."""
        ...
