"""A draft as its tokens are drawn, one after another."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from decoding.draft import Draft
from decoding.sampling import Distribution


@dataclass(slots=True)
class GrowingDraft:
    """Tokens so far, each with what it was drawn from; None there for one that was certain."""

    tokens: list[int] = field(default_factory=list[int])
    distributions: list[Distribution | None] = field(default_factory=list[Distribution | None])
    confidence: list[float] = field(default_factory=list[float])
    evidence: list[int] = field(default_factory=list[int])

    def __len__(self) -> int:
        return len(self.tokens)

    def add(
        self, token: int, q_draft: Distribution | None, confidence: float, evidence: int
    ) -> None:
        """One more token, as in a Draft."""
        self.tokens.append(token)
        self.distributions.append(q_draft)
        self.confidence.append(confidence)
        self.evidence.append(evidence)

    def done(self, drafter: str, tail: Sequence[int] = ()) -> Draft:
        """The draft under a drafter's name; tail: which of its tokens are the tail."""
        drawn = any(q_draft is not None for q_draft in self.distributions)
        return Draft(
            tuple(self.tokens),
            drafter,
            tuple(self.confidence),
            tuple(self.distributions) if drawn else None,
            tuple(self.evidence),
            tail=len(tail),
        )
