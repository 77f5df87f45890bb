"""What a drafter proposes, and what every drafter offers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from decoding.sampler import Sampler
from decoding.sampling import Distribution


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed to follow a history.

    confidence: the drafter's own probability of each token, or 1.0 where it has none.
    distributions: the q_draft each token was drawn from, None for a deterministic drafter.
    """

    tokens: tuple[int, ...]
    drafter: str
    confidence: tuple[float, ...]
    distributions: tuple[Distribution, ...] | None = None

    def __len__(self) -> int:
        return len(self.tokens)


NO_DRAFT = Draft((), "", ())


class Drafter(Protocol):
    """Guesses the next tokens. Catches up with the history lazily, so idling costs nothing."""

    @property
    def name(self) -> str:
        """How the drafter is called in statistics and on screen."""
        ...

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        """Start a reply to history, which need not continue the one before."""
        ...

    def propose(self, history: Sequence[int], limit: int) -> Draft:
        """At most limit tokens to follow history; an empty draft for nothing to say.

        history continues what begin or the last commit gave.
        """
        ...

    def commit(self, history: Sequence[int]) -> None:
        """Learn what the model said after verification."""
        ...
