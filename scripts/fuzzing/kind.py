"""Contract of a kind of file to fuzz."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Protocol

READ, REFUSED, REBUILT = "read", "refused", "rebuilt"
"""What became of a damaged file: used as it is, refused by a named error, replaced by a new one."""


class Kind(Protocol):
    """Makes, damages and reads files of one kind."""

    @property
    def name(self) -> str:
        """Name on the command line."""
        ...

    @property
    def file_name(self) -> str:
        """Name of the file in the empty folder in which it is read."""
        ...

    def samples(self, folder: Path) -> Sequence[bytes]:
        """Valid files of the kind, from specchat's own writers; folder is empty."""
        ...

    def damage(self, good: bytes, random: Random) -> bytes:
        """Damaged copy, reproducible by the state of random."""
        ...

    def read(self, path: Path) -> str:
        """Read the file as specchat does, and return the result in words.

        Raises:
            SpecchatError: the file was refused. Any other exception is a fault.
        """
        ...
