"""A draft as its tokens are drawn, one after another."""

from dataclasses import dataclass, field

from decoding.draft import Draft
from decoding.sampling import Distribution


@dataclass(slots=True)
class GrowingDraft:
    """Tokens so far; distributions stays empty for a deterministic drafter."""

    tokens: list[int] = field(default_factory=list[int])
    confidence: list[float] = field(default_factory=list[float])
    evidence: list[int] = field(default_factory=list[int])
    distributions: list[Distribution] = field(default_factory=list[Distribution])

    def __len__(self) -> int:
        return len(self.tokens)

    def add(
        self, token: int, confidence: float, evidence: int, q_draft: Distribution | None = None
    ) -> None:
        """One more token, as in a Draft."""
        self.tokens.append(token)
        self.confidence.append(confidence)
        self.evidence.append(evidence)
        if q_draft is not None:
            self.distributions.append(q_draft)

    def done(self, drafter: str, tail: int = 0) -> Draft:
        """The draft under a drafter's name; tail: how many of its last tokens may be cut off."""
        return Draft(
            tuple(self.tokens),
            drafter,
            tuple(self.confidence),
            tuple(self.distributions) or None,
            tuple(self.evidence),
            tail=tail,
        )
