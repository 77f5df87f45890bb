"""Drafts the text that a grammar forces: after it, nothing else may follow."""

from collections.abc import Sequence

from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, KeepOn
from decoding.drafters.no_backlog import NoBacklog
from decoding.forms import PointMassLine
from decoding.sampling.sampler import Sampler
from decoding.sampling.sampling_settings import SamplingSettings

NAME = "grammar"

_CERTAIN, _LAST = 0, 1
"""Evidence classes: tokens that the tokenizer divides off whatever follows, and the last ones."""

_PRIORS = (0.95, 0.6)
"""Acceptance of each class until it is counted. The text is certain, and models nearly always write
it in the tokenizer's own division. Guesses; not measured."""


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
        tokens, certain = self._sampler.forced(history, min(limit, MOST_DRAFTED))
        if not tokens:
            return NO_DRAFT
        evidence = (*(_CERTAIN,) * certain, *(_LAST,) * (len(tokens) - certain))
        confidence = tuple(_PRIORS[number] for number in evidence)
        return Draft(PointMassLine(tokens), self.name, confidence, evidence)
