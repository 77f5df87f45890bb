"""What a drafter's tokens are worth in the reply at hand: estimated acceptance, and its counts."""

import math
from collections.abc import Sequence

from decoding.draft import Draft
from decoding.estimation.acceptance import LEAST, Acceptance, Count
from decoding.estimation.acceptance_keys import DRAWN, NOTHING, temperature_bucket
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.lossy_rule import LossyRule

POSITION_PRIOR = 0.65
"""Acceptance expected of a drafter model that nobody has measured."""


class AcceptanceEstimates:
    """Estimates acceptance by evidence and by position, under the sampling settings of a reply.

    prior: acceptance expected until it is known. bucket: the temperatures and the rule whose counts
    apply. text_kind: of the next token, "" where that is unknown. judged: tokens that the exact
    rule judged, sent or not.
    """

    def __init__(self, acceptance: Acceptance | None = None, prior: float = POSITION_PRIOR) -> None:
        self.acceptance = acceptance or Acceptance()
        self.prior = prior
        self.bucket = temperature_bucket(SamplingSettings().temperature)
        self.is_lossless = True
        self.text_kind = ""
        self.judged = Count()

    def begin(self, temperature: float, rule: LossyRule | None = None) -> None:
        """Start a reply at a temperature; a lossy rule has counts of its own."""
        self.bucket = temperature_bucket(temperature, rule)
        self.is_lossless = rule is None
        self.acceptance.begin()

    def of_token(self, confidence: float, evidence: int) -> float:
        """The probability that a token is accepted, if all before it are."""
        return self.acceptance.in_this_reply(self._mean(f"{self.bucket}:{evidence}", confidence))

    def of_draft(self, draft: Draft) -> list[float]:
        """For each token of a draft, the probability that it is accepted, if all before it are."""
        pairs = zip(draft.confidence, draft.evidence, strict=True)
        return [self.of_token(confidence, evidence) for confidence, evidence in pairs]

    def by_position(self, first: int, count: int) -> list[float]:
        """Estimated acceptance of tokens not drawn yet, by their position in the draft alone.

        A position that was seldom reached is taken to be like the one before it.
        """
        estimates: list[float] = []
        mean = self.acceptance.mean(self._drawn, self.prior)
        better = _log_odds(self.mean_at_any_position) - _log_odds(mean)
        for position in range(first + count):
            mean = self.acceptance.mean(f"{self.bucket}:at{position}", mean)
            if position >= first:
                estimates.append(self.acceptance.in_this_reply(mean, better))
        return estimates

    def at_position(self, position: int) -> float:
        """Estimated acceptance at one draft position."""
        return self.by_position(position, 1)[0]

    def shifted(self, estimates: Sequence[float], errors: float) -> list[float]:
        """Estimates by position, moved by so many standard errors."""
        judged = self.acceptance.judged(self._drawn)
        return [
            min(max(mean + errors * math.sqrt(mean * (1.0 - mean) / (judged + 1.0)), 0.0), 1.0)
            for mean in estimates
        ]

    @property
    def mean_at_any_position(self) -> float:
        """Acceptance of a drafter model over all replies and positions."""
        return self._mean(self._drawn, self.prior)

    @property
    def recalled(self) -> float | None:
        """The share accepted that was known before this start, None if none was."""
        is_known = self.acceptance.judged(self._drawn) > self._silent
        return self.acceptance.share(self._drawn) if is_known else None

    @property
    def was_silent(self) -> bool:
        """Whether the drafter was ever asked in vain."""
        return self._silent > 0.0

    @property
    def is_untried(self) -> bool:
        """Whether nothing is known, from this start or an earlier one."""
        return not self.acceptance.counts()

    def add_token(self, evidence: int, confidence: float, *, accepted: bool) -> None:
        """Count a judged token by its evidence."""
        self.acceptance.update_bias(self.of_token(confidence, evidence), accepted)
        self._add(f"{self.bucket}:{evidence}", accepted)

    def add_position(self, position: int, *, accepted: bool) -> None:
        """Count a token of a drafter model by its position."""
        self._add(self._drawn, accepted)
        self.acceptance.add(f"{self.bucket}:at{position}", accepted)

    def add_judged(self, *, accepted: bool) -> None:
        """Count a token for the acceptance that is shown, which is the exact rule's."""
        if self.is_lossless:
            self.judged.add(accepted)

    def add_silence(self) -> None:
        """Count a request without an answer: against the drafter, though no token was judged."""
        self.add_position(0, accepted=False)
        self.acceptance.add(f"{self.bucket}:{NOTHING}", False)

    @property
    def _drawn(self) -> str:
        return f"{self.bucket}:{DRAWN}"

    @property
    def _silent(self) -> float:
        return self.acceptance.judged(f"{self.bucket}:{NOTHING}")

    def _mean(self, key: str, prior: float) -> float:
        """Over all replies, narrowed down to text of this kind."""
        mean = self.acceptance.mean(key, prior)
        return self.acceptance.mean(f"{key}:{self.text_kind}", mean) if self.text_kind else mean

    def _add(self, key: str, accepted: bool) -> None:
        """Count a token in all text and in text of this kind."""
        self.acceptance.add(key, accepted)
        if self.text_kind:
            self.acceptance.add(f"{key}:{self.text_kind}", accepted)


def _log_odds(share: float) -> float:
    share = min(max(share, LEAST), 1.0 - LEAST)
    return math.log(share / (1.0 - share))
