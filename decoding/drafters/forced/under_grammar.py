"""What a grammar tells about the tokens that drafters propose under it."""

from collections.abc import Sequence
from dataclasses import replace

from decoding.constraint.constraint import Grounds
from decoding.draft import Draft

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
