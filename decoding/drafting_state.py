"""Whether drafting is on, and what a parked drafter lacks."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """State of drafting as a whole, or of one drafter."""

    ON = "on"
    PARKED = "parked"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The acceptance of a parked drafter, and the higher one with which it would pay."""

    accepted: float
    needed: float
