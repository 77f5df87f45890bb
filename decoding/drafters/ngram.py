"""The drafter that gets to know its model: n-gram statistics of what it said, kept and growing.

Stewart et al. 2024 (arXiv 2411.03786), "The N-Grammys", show that such statistics draft for free;
here they are learned from this model's own replies, and every token comes with a confidence.
"""

from collections.abc import Sequence

from decoding.draft import NO_DRAFT, Draft, KeepOn
from decoding.drafters.draft_model import evidence_class
from decoding.drafters.no_backlog import NoBacklog
from decoding.ngram_statistics import LONGEST, NgramStatistics, Passage
from decoding.sampler import Sampler

_PASSAGE = 16
"""Tokens said after which they are learned: all at once is less work than one by one."""

_LEAST = 0.05
"""Joint confidence below which a token pays on no machine."""


class Ngram(NoBacklog):
    """Proposes what the model mostly said after such an end; learns what verification let stand."""

    is_free = True

    def __init__(self, statistics: NgramStatistics | None = None, *, max_draft: int = 15) -> None:
        self.name = "ngram"
        self.is_forgetful = False
        """Whether a reply begins with nothing learned and teaches the next nothing."""
        self._lasting = statistics or NgramStatistics()
        self._statistics = self._lasting
        self._max_draft = max_draft
        self._heard: list[Passage] = []
        self._history: Sequence[int] = ()
        self._length = 0
        """Tokens of the history that are learned, or not this model's."""

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        del sampler  # it says what it knows, whatever the settings
        self._learn()
        self._length = len(history)  # the prompt is not what this model says
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
        """What was said since this was asked last, and is learned by now."""
        self._learn()
        heard, self._heard = self._heard, []
        return heard

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on  # what it knows is cheap to say
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
        evidence = tuple(map(evidence_class, confidence))
        return Draft(tuple(text[known:]), self.name, tuple(confidence), None, evidence)
