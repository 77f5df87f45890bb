"""Contract of a baseline: another implementation that generates with the same weights."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from backends.base.errors import ModelError
from backends.base.model import Warping

Reply = tuple[list[int], float]
"""Tokens, and seconds from the first of them to the last."""


class BaselineEngine(Protocol):
    """Another program that generates with a model."""

    @property
    def name(self) -> str: ...
    def reply(
        self,
        prompt: Sequence[int],
        warping: Warping,
        seed: int,
        *,
        max_tokens: int,
        ends: Callable[[int], bool],
    ) -> Reply:
        """Continue a prompt. Raises ModelError: it failed."""
        ...

    def close(self) -> None:
        """Free its memory."""
        ...


def timed_reply(
    name: str, tokens: Iterable[int], max_tokens: int, ends: Callable[[int], bool]
) -> Reply:
    """Collect and time a baseline's tokens, up to one that ends the reply.

    Raises:
        ModelError: the baseline of this name failed.
    """
    reply: list[int] = []
    first_at = last_at = 0.0
    try:
        for token in tokens:
            last_at = time.perf_counter()
            first_at = first_at or last_at
            reply.append(token)
            if ends(token) or len(reply) >= max_tokens:
                break
    except (RuntimeError, ValueError, IndexError) as error:
        raise ModelError(f"{name} failed", str(error)) from error
    return reply, last_at - first_at
