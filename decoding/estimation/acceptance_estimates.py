"""Estimated acceptance of a drafter's tokens in the present reply."""

import math
from collections.abc import Sequence

from decoding.draft import Draft
from decoding.estimation.acceptance import LEAST, Acceptance, Count
from decoding.estimation.acceptance_keys import ANY_POSITION, EMPTY_DRAFT, temperature_bucket
from decoding.sampling.lossy_rule import LossyRule
from decoding.sampling.sampling_settings import SamplingSettings

POSITION_PRIOR = 0.65
"""Acceptance assumed of a drafter model without a trial or counts. A guess: below the 0.71 to 0.74
measured for a copy of the model itself (docs/reference/measurements.md)."""


TRAINED_PRIOR = 0.8
"""Acceptance assumed of layers that were trained to predict their target's next tokens. Published
for Qwen3.8-27B's own on code and prose together: 0.88 of first tokens, 0.80 of two
(github.com/sudoingX/qwen38-mtp, sweeps/rtx-5090.md); not measured here."""


class AcceptanceEstimates:
    """Estimates acceptance by evidence and by position, under the sampling settings of a reply.

    prior: acceptance expected until it is known. bucket: temperature bucket, with the lossy rule if
    there is one. text_kind: of the next token, "" if unknown. judged: tokens judged by the exact
    rule, sent or not.
    """

    def __init__(self, acceptance: Acceptance | None = None, prior: float = POSITION_PRIOR) -> None:
        self.acceptance = acceptance or Acceptance()
        self.prior = prior
        self.bucket = temperature_bucket(SamplingSettings().temperature)
        self.is_lossless = True
        self.text_kind = ""
        self.judged = Count()

    def begin(self, temperature: float, rule: LossyRule | None = None) -> None:
        """Start a reply at a temperature; each lossy rule has separate counts."""
        self.bucket = temperature_bucket(temperature, rule)
        self.is_lossless = rule is None
        self.text_kind = ""
        self.acceptance.begin()

    def of_token(self, confidence: float, evidence: int) -> float:
        """Probability that a token is accepted, given that all before it are."""
        return self.acceptance.in_this_reply(self._mean(f"{self.bucket}:{evidence}", confidence))

    def of_draft(self, draft: Draft) -> list[float]:
        """Probability that each token of a draft is accepted, given that all before it are."""
        pairs = zip(draft.confidence, draft.evidence, strict=True)
        return [self.of_token(confidence, evidence) for confidence, evidence in pairs]

    def by_position(self, first: int, count: int) -> list[float]:
        """Estimated acceptance of tokens that are not drafted yet, by position in the draft.

        A position that was rarely reached is assumed to be like the one before it.
        """
        estimates: list[float] = []
        mean = self.acceptance.mean(self._any_position, self.prior)
        kind_shift = _log_odds(self.mean_at_any_position) - _log_odds(mean)
        for position in range(first + count):
            mean = self.acceptance.mean(f"{self.bucket}:at{position}", mean)
            if position >= first:
                estimates.append(self.acceptance.in_this_reply(mean, kind_shift))
        return estimates

    def at_position(self, position: int) -> float:
        """Estimated acceptance at one draft position."""
        return self.by_position(position, 1)[0]

    def shifted(self, estimates: Sequence[float], errors: float) -> list[float]:
        """Estimates by position, shifted by a number of standard errors."""
        judged = self.acceptance.judged(self._any_position)
        return [
            min(max(mean + errors * math.sqrt(mean * (1.0 - mean) / (judged + 1.0)), 0.0), 1.0)
            for mean in estimates
        ]

    @property
    def mean_at_any_position(self) -> float:
        """Acceptance over all replies and positions, for this kind of text."""
        return self._mean(self._any_position, self.prior)

    @property
    def recalled(self) -> float | None:
        """Observed share of accepted tokens at any position; None if no token was judged."""
        is_known = self.acceptance.judged(self._any_position) > self._silent
        return self.acceptance.share(self._any_position) if is_known else None

    @property
    def was_silent(self) -> bool:
        """Whether the drafter ever proposed nothing when asked."""
        return self._silent > 0.0

    @property
    def is_untried(self) -> bool:
        """Whether nothing is known, from this session or an earlier one."""
        return not self.acceptance.counts()

    def add_token(self, evidence: int, confidence: float, *, accepted: bool) -> None:
        """Count a judged token by its evidence."""
        self.acceptance.update_bias(self.of_token(confidence, evidence), accepted)
        self._add(f"{self.bucket}:{evidence}", accepted)

    def add_position(self, position: int, *, accepted: bool) -> None:
        """Count a token of a drafter model by its position."""
        self._add(self._any_position, accepted)
        self.acceptance.add(f"{self.bucket}:at{position}", accepted)

    def add_judged(self, *, accepted: bool) -> None:
        """Count a token for the acceptance shown to the user, which is the exact rule's."""
        if self.is_lossless:
            self.judged.add(accepted)

    def add_silence(self) -> None:
        """Count an empty draft as a rejected token, though no token was judged."""
        self.add_position(0, accepted=False)
        self.acceptance.add(f"{self.bucket}:{EMPTY_DRAFT}", False)

    @property
    def _any_position(self) -> str:
        return f"{self.bucket}:{ANY_POSITION}"

    @property
    def _silent(self) -> float:
        return self.acceptance.judged(f"{self.bucket}:{EMPTY_DRAFT}")

    def _mean(self, key: str, prior: float) -> float:
        """Mean over all replies, narrowed down to this kind of text."""
        mean = self.acceptance.mean(key, prior)
        return self.acceptance.mean(f"{key}:{self.text_kind}", mean) if self.text_kind else mean

    def _add(self, key: str, accepted: bool) -> None:
        """Count a token under its key, and under the key of this kind of text."""
        self.acceptance.add(key, accepted)
        if self.text_kind:
            self.acceptance.add(f"{key}:{self.text_kind}", accepted)


def _log_odds(share: float) -> float:
    share = min(max(share, LEAST), 1.0 - LEAST)
    return math.log(share / (1.0 - share))
