"""A request for a draft that was answered with nothing."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Silence:
    """A drafter that proposed nothing when asked, and the seconds that this took."""

    drafter: str
    seconds: float


def total_seconds(silences: Iterable[Silence]) -> float:
    """Seconds spent on requests without an answer."""
    return sum(silence.seconds for silence in silences)
