"""Base of a baseline: another implementation that generates with the same weights."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from backends.base.errors import ModelError
from backends.base.model import Warping


@dataclass(frozen=True, slots=True)
class BaselineReply:
    """What was generated; seconds: from the first token to the last."""

    tokens: list[int]
    ttft_seconds: float
    seconds: float


class BaselineEngine(ABC):
    """Another program that generates with a model."""

    name: str

    @abstractmethod
    def tokens(
        self, prompt: Sequence[int], warping: Warping, seed: int, max_tokens: int
    ) -> Iterable[int]:
        """Generate tokens after a prompt, perhaps more than max_tokens."""

    def reply(
        self,
        prompt: Sequence[int],
        warping: Warping,
        seed: int,
        *,
        max_tokens: int,
        ends: Callable[[int], bool],
    ) -> BaselineReply:
        """Continue a prompt up to a token that ends the reply. Raises ModelError: it failed."""
        reply: list[int] = []
        asked_at, first_at, last_at = time.perf_counter(), 0.0, 0.0
        try:
            for token in self.tokens(prompt, warping, seed, max_tokens):
                last_at = time.perf_counter()
                first_at = first_at or last_at
                reply.append(token)
                if ends(token) or len(reply) >= max_tokens:
                    break
        except (RuntimeError, ValueError, IndexError) as error:
            raise ModelError(f"{self.name} failed", str(error)) from error
        return BaselineReply(reply, first_at - asked_at, last_at - first_at)

    def empty(self) -> None:  # noqa: B027 - most keep nothing
        """Keep nothing of earlier prompts, so that the next one is read whole."""

    def close(self) -> None:  # noqa: B027 - most hold nothing of their own
        """Free its memory."""
