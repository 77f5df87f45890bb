"""A kind of file that specchat reads, as a campaign of damaged files sees it."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Protocol

READ, REFUSED, REBUILT = "read", "refused", "rebuilt"
"""What became of a damaged file: used as it is, refused by a named error, replaced by a new one."""


class Kind(Protocol):
    """How files of one kind are made, damaged and read."""

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    @property
    def file_name(self) -> str:
        """What the file is called in the empty folder that it is read in."""
        ...

    def samples(self, folder: Path) -> Sequence[bytes]:
        """Good files of the kind, written by the program's own writers; folder is empty."""
        ...

    def damage(self, good: bytes, random: Random) -> bytes:
        """A damaged copy, the same one for the same state of random."""
        ...

    def read(self, path: Path) -> str:
        """Read the file as the program does, and say what became of it.

        Raises:
            SpecchatError: it was refused by name. Any other exception is a fault.
        """
        ...
