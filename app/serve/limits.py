"""Bounds on what programs may send, so that none of them takes all."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server; sizes are in bytes, times in seconds.

    All are guesses on the generous side of what clients send; none was measured.
    """

    body: int = 10 * 1024 * 1024
    headers: int = 32 * 1024
    header_seconds: float = 10.0
    """Time to send a request's headers, from the connection or the end of the reply before."""
    body_seconds: float = 30.0
    connections: int = 256
    waiting: int = 32
    """Requests in the queue, beside the one that is answered."""
    heartbeat_seconds: float = 10.0
    """Longest silence of a stream; Node's fetch gives up after 300 s."""
    check_seconds: float = 1.0
    """How long a stream's headers wait for the prompt, which tells whether it is too long."""


MOST_VALUES = 100_000
"""Values in a body; long sessions of agents with many tools have some ten thousand."""
MOST_FIELDS = 256
"""Fields of one object whose fields are known."""
MOST_ITEMS = 4096
"""Items of a list that has no bound of its own, such as messages."""
MOST_CHOICES = 16
MOST_STOPS = 16
MOST_STOP_CHARACTERS = 1024
MOST_TOP_LOGPROBS = 20
MOST_BIASES = 1024
MOST_TOOLS = 256
