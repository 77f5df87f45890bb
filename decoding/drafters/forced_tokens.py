"""Drafts the text that a grammar forces, and what it tells of the tokens that others propose."""

from collections.abc import Sequence
from dataclasses import replace

from decoding.constraint.constraint import Grounds
from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings

NAME = "grammar"

_PRIORS = {Grounds.KNOWN: 0.95, Grounds.LIKELY: 0.8, Grounds.GUESSED: 0.6}
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
        tokens, grounds = self._sampler.forced(history, min(limit, MOST_DRAFTED))
        if not tokens:
            return NO_DRAFT
        confidence = tuple(_PRIORS[one] for one in grounds)
        return Draft(PointMassLine(tokens), self.name, confidence, tuple(map(int, grounds)))


_FIRST_CLASS = 100
"""Evidence classes of such tokens begin here, above the drafters' own."""

_SURE = {Grounds.KNOWN: 0.95, Grounds.LIKELY: 0.8}
_UNSURE = {Grounds.GUESSED: 0.5, Grounds.DIFFERENT: 0.3, Grounds.FIRST: 0.5, Grounds.SECOND: 0.75}
"""Acceptance of each until it is counted; of the unsure ones less where the drafter says so.

Of tokens of `lookup` in 16 extractions by the bundled model, 0.44 of those that begin a value were
right and 0.76 of the second ones, however long the match before them; 0.86 of the others.
"""


def with_grounds(draft: Draft, grounds: Sequence[Grounds]) -> Draft:
    """A line whose evidence is what the grammar tells of a token, where it tells anything.

    The length of a match says little there: certain texts lengthen it, and what follows them is
    another value each time.
    """
    if not any(one is not Grounds.FURTHER for one in grounds):
        return draft
    own = zip(draft.confidence, draft.evidence, grounds, strict=True)
    seen = [_seen(confidence, evidence, one) for confidence, evidence, one in own]
    confidence, evidence = zip(*seen, strict=True)
    return replace(draft, confidence=confidence, evidence=evidence)


def _seen(confidence: float, evidence: int, grounds: Grounds) -> tuple[float, int]:
    if grounds is Grounds.FURTHER:
        return confidence, evidence
    prior = _SURE.get(grounds) or min(_UNSURE[grounds], confidence)
    return prior, _FIRST_CLASS + grounds
