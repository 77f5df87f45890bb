"""Drafts the text that a grammar forces, and what it tells of the tokens that others propose."""

from collections.abc import Sequence
from dataclasses import replace

from decoding.constraint.constraint import Evidence
from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings

NAME = "grammar"

_PRIORS = {Evidence.KNOWN: 0.95, Evidence.LIKELY: 0.8, Evidence.GUESSED: 0.6}
"""Acceptance by what speaks for a token, until it is counted.

In 16 extractions the bundled model, which was not told the names in the schemas, wrote 0.97, 0.84
and 0.58 of such tokens so.
"""


class ForcedTokens(Drafter):
    """Proposes the tokens of the only text that the reply's grammar allows next.

    They are drafted, and never put into the reply unverified: where the text is certain, its
    division into tokens is still the model's choice.
    """

    is_free = True

    def __init__(self) -> None:
        self.name = NAME
        self._sampler = Sampler(SamplingSettings())

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._sampler = sampler

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        tokens, evidence = self._sampler.forced(history, min(limit, MOST_DRAFTED))
        if not tokens:
            return NO_DRAFT
        confidence = tuple(_PRIORS[one] for one in evidence)
        return Draft(PointMassLine(tokens), self.name, confidence, tuple(map(int, evidence)))


_FIRST_CLASS = 100
"""Evidence classes of such tokens begin here, above the drafters' own."""

_SURE = {Evidence.KNOWN: 0.95, Evidence.LIKELY: 0.8}
_UNSURE = {
    Evidence.GUESSED: 0.5, Evidence.DIFFERENT: 0.3, Evidence.FIRST: 0.5, Evidence.SECOND: 0.75,
}  # fmt: skip
"""Acceptance of each until it is counted; of the unsure ones less where the drafter says so.

Of tokens of `lookup` in 16 extractions by the bundled model, 0.44 of those that begin a value were
right and 0.76 of the second ones, however long the match before them; 0.86 of the others.
"""


def with_evidence(draft: Draft, known: Sequence[Evidence]) -> Draft:
    """A line whose evidence is what the grammar tells of a token, where it tells anything.

    The length of a match says little there: certain texts lengthen it, and what follows them is
    another value each time.
    """
    if not any(one is not Evidence.FURTHER for one in known):
        return draft
    confidence, evidence = list(draft.confidence), list(draft.evidence)
    for at, one in enumerate(known):
        if one is not Evidence.FURTHER:
            confidence[at] = _SURE.get(one) or min(_UNSURE[one], confidence[at])
            evidence[at] = _FIRST_CLASS + one
    return replace(draft, confidence=tuple(confidence), evidence=tuple(evidence))
