"""Builder of a line whose tokens are proposed one after another."""

from dataclasses import dataclass, field

from decoding.draft import Draft
from decoding.forms import PointMassLine, SampledLine
from decoding.sampling.distribution import Distribution


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
        """Append a token, with its q_draft if it was sampled."""
        self.tokens.append(token)
        self.confidence.append(confidence)
        self.evidence.append(evidence)
        if q_draft is not None:
            self.distributions.append(q_draft)

    def done(self, drafter: str, prunable_suffix: int = 0) -> Draft:
        """The draft, under the name of its drafter."""
        tokens = tuple(self.tokens)
        form = (
            SampledLine(tokens, tuple(self.distributions), prunable_suffix)
            if self.distributions
            else PointMassLine(tokens)
        )
        return Draft(form, drafter, tuple(self.confidence), tuple(self.evidence))
