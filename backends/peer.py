"""Another program's own generation with the same weights, for comparison in the bench."""

import time
from collections.abc import Callable, Iterable
from typing import Protocol

from backends.base import ModelError

Reply = tuple[list[int], float]
"""Tokens, and seconds from the first of them to the last."""


class Peer(Protocol):
    """A program that generates with a model."""

    @property
    def name(self) -> str: ...
    @property
    def reply(self) -> Callable[..., Reply]:
        """Continues a prompt; raises ModelError where it fails."""
        ...

    def close(self) -> None: ...


def collected(
    name: str, tokens: Iterable[int], max_tokens: int, ends: Callable[[int], bool]
) -> Reply:
    """Time what a peer generates, up to a token that ends it.

    Raises:
        ModelError: the peer of this name failed.
    """
    found: list[int] = []
    first_at = last_at = 0.0
    try:
        for token in tokens:
            last_at = time.perf_counter()
            first_at = first_at or last_at
            found.append(token)
            if ends(token) or len(found) >= max_tokens:
                break
    except (RuntimeError, ValueError, IndexError) as error:
        raise ModelError(f"{name} failed", str(error)) from error
    return found, last_at - first_at
