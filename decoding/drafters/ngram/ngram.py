"""Drafts from n-gram statistics of the model's own replies.

Stewart et al. 2024 (arXiv 2411.03786), "The N-Grammys". Here the statistics are learned from this
model's own replies and kept, and every token comes with a confidence.
"""

from collections.abc import Sequence

from decoding.draft import NO_DRAFT, Draft, KeepOn, with_confidence
from decoding.drafters.ngram.ngram_statistics import LONGEST, NgramStatistics, Passage
from decoding.drafters.no_backlog import NoBacklog
from decoding.forms import PointMassLine
from decoding.sampling.sampler import Sampler

_PASSAGE = 16
"""Number of emitted tokens that are learned at once, which is less work than one by one."""

_LEAST = 0.05
"""Joint confidence below which no token is worth its cost."""


class Ngram(NoBacklog):
    """Proposes the model's most frequent continuation; learns from the verified text."""

    is_free = True

    def __init__(self, statistics: NgramStatistics | None = None, *, max_draft: int = 15) -> None:
        self.name = "ngram"
        self.is_forgetful = False
        """Disable learning across replies, for comparisons."""
        self._lasting = statistics or NgramStatistics()
        self._statistics = self._lasting
        self._max_draft = max_draft
        self._heard: list[Passage] = []
        self._history: Sequence[int] = ()
        self._length = 0
        """Number of tokens of the history that are learned already, or not this model's."""

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        del sampler  # its statistics do not depend on the settings
        self._learn()
        self._length = len(history)  # the prompt is not this model's output
        self._statistics = NgramStatistics() if self.is_forgetful else self._lasting

    def commit(self, history: Sequence[int]) -> None:
        self._history = history
        if len(history) >= self._length + _PASSAGE:
            self._learn()

    def _learn(self) -> None:
        history, self._history = self._history, ()
        if len(history) <= self._length:
            return
        start = min(self._length, LONGEST)
        passage = Passage(history[self._length - start :], start)
        self._statistics.learn(passage)
        if self._statistics is self._lasting:
            self._heard.append(passage)
        self._length = len(history)

    def heard(self) -> list[Passage]:
        """Passages learned since the last call."""
        self._learn()
        heard, self._heard = self._heard, []
        return heard

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on  # proposing costs next to nothing
        text = list(history[-LONGEST:])
        known = len(text)
        confidence: list[float] = []
        together = 1.0
        while len(confidence) < min(limit, self._max_draft):
            guess = self._statistics.guess(text[-LONGEST:])
            together *= guess.confidence if guess else 0.0
            if guess is None or together < _LEAST:
                break
            text.append(guess.token)
            confidence.append(guess.confidence)
        if not confidence:
            return NO_DRAFT
        return with_confidence(PointMassLine(tuple(text[known:])), self.name, confidence)
