"""What it took to ask a drafter that had nothing to say."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Silence:
    """A drafter that was asked for a draft in vain, and the seconds that this took."""

    drafter: str
    seconds: float


def wasted(silences: Iterable[Silence]) -> float:
    """Seconds of all of them."""
    return sum(one.seconds for one in silences)
