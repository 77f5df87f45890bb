"""How far the engine has read ahead of the user."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AheadState:
    """Progress of reading ahead, for any thread.

    read, total: tokens of the expected prompt that are ready, and all of them. paused: why nothing
    is read at present; empty while reading, and once all that is certain is read.
    """

    read: int
    total: int
    paused: str = ""
