"""Speed at which a model's file comes from disk."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """Bytes per second read from the disk of a file, and the source of the figure."""

    bytes_per_second: float
    source: str
    """In plain words, for display."""


def measured_disk_speed(path: Path) -> DiskSpeed | None:
    """Measure reading a file past the system's cache, in under two seconds; None if impossible."""
    raise NotImplementedError
