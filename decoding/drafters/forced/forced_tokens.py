"""Drafts the text that a grammar forces: after it, nothing else may follow."""

from collections.abc import Sequence

from decoding.constraint.constraint import Grounds
from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, KeepOn
from decoding.drafters.no_backlog import NoBacklog
from decoding.forms import PointMassLine
from decoding.sampling.sampler import Sampler
from decoding.sampling.sampling_settings import SamplingSettings

NAME = "grammar"

_PRIORS = {Grounds.KNOWN: 0.95, Grounds.LIKELY: 0.8, Grounds.GUESSED: 0.6}
"""Acceptance by what speaks for a token, until it is counted.

In 16 extractions the bundled model, which was not told the names in the schemas, wrote 0.97, 0.84
and 0.58 of such tokens so.
"""


class ForcedTokens(NoBacklog):
    """Proposes the tokens of the only text that the reply's grammar allows next.

    They are drafted, and never put into the reply unverified: where the text is certain, its
    division into tokens is still the model's choice.
    """

    is_free = True

    def __init__(self) -> None:
        self.name = NAME
        self._sampler = Sampler(SamplingSettings())

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        del history
        self._sampler = sampler

    def commit(self, history: Sequence[int]) -> None:
        """Nothing to take in: the constraint follows the reply."""

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on  # the whole draft costs one look
        tokens, grounds = self._sampler.forced(history, min(limit, MOST_DRAFTED))
        if not tokens:
            return NO_DRAFT
        confidence = tuple(_PRIORS[one] for one in grounds)
        return Draft(PointMassLine(tokens), self.name, confidence, tuple(map(int, grounds)))
