"""Where a server is and what it serves, as its clients have to be told."""

from dataclasses import dataclass

from backends.base import UsageError

NO_KEY = "none"
"""What clients that insist on a key are given, where the server wants none."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of a server without a path, the model it serves, and its context in tokens."""

    address: str
    model: str
    context: int
    needs_key: bool = False

    @property
    def openai(self) -> str:
        """Base URL for clients that speak one of OpenAI's dialects."""
        return f"{self.address}/v1"

    @property
    def longest_answer(self) -> int:
        """Tokens to leave for an answer, where a client wants them told from the context.

        A quarter: a guess; not measured.
        """
        return max(1, self.context // 4)


def address_of(host: str, port: int) -> str:
    """The URL of a server, without a path.

    Raises:
        UsageError: the server gets its port only when it starts.
    """
    if port == 0:
        raise UsageError("--port 0 has no address yet", "the system chooses a port at the start")
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
