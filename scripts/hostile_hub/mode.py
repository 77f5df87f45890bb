"""One hostile behaviour of a hub or a cache, and the expected outcome."""

from collections.abc import Callable
from dataclasses import dataclass

from scripts.hostile_hub.server import HostileHub

Lie = Callable[[HostileHub], None]


@dataclass(frozen=True, slots=True)
class Mode:
    """A hostile behaviour, and the outcome that a download must have."""

    name: str
    lie: Lie
    says: str | None
    """A pattern of the error's text; None where the right file has to come all the same."""
    is_slow: bool = False
    """Whether it is about time, so that the client has little patience."""
    most_bytes: int = 1 << 20
    """What the client may receive at most."""
