"""How often tokens of a kind are accepted: learned from every verification, slowly forgotten."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

_MEMORY = 0.985
"""What a count keeps at each new observation of its kind: about the last 60 matter."""

_PRIOR_WEIGHT = 10.0
"""Observations that a prior counts for."""

_BIAS_RATE = 0.12
_BIAS_MEMORY = 0.98
_CARRIED = 20.0
"""Observations that what an earlier start learned counts for at most."""

LEAST = 0.005
"""No estimate is surer than this, nor than 1 less it."""


@dataclass(slots=True)
class Count:
    """Decayed counts of one kind of token."""

    accepted: float = 0.0
    judged: float = 0.0

    def add(self, accepted: bool) -> None:
        """Take one judged token into account."""
        self.accepted = self.accepted * _MEMORY + accepted
        self.judged = self.judged * _MEMORY + 1.0

    def mean(self, prior: float) -> float:
        """The posterior mean under a prior that fades as observations come in."""
        weight = _PRIOR_WEIGHT * max(0.0, 1.0 - self.judged * (1.0 - _MEMORY))
        return (self.accepted + weight * prior) / (self.judged + weight)


class Acceptance:
    """Estimates by kind of token, shifted by how this reply goes.

    A kind is any text; its count is a Beta posterior with decay. The shift, in log odds, is shared
    by all kinds: text that a drafter suits better than usual shows in a few tokens.
    is_trial: whether counts are what a trial expects; until a token was judged.
    """

    def __init__(
        self, counts: Mapping[str, tuple[float, float]] | None = None, *, is_trial: bool = False
    ) -> None:
        self.is_trial = is_trial
        self._counts: dict[str, Count] = {}
        self._bias = 0.0
        for kind, (accepted, judged) in (counts or {}).items():
            share = min(1.0, _CARRIED / judged) if judged > 0 else 0.0
            self._counts[kind] = Count(accepted * share, judged * share)

    def counts(self) -> dict[str, tuple[float, float]]:
        """What to keep for the next start: accepted and judged by kind."""
        return {kind: (count.accepted, count.judged) for kind, count in self._counts.items()}

    def begin(self) -> None:
        """A new reply: it may go otherwise than the last."""
        self._bias = 0.0

    def mean(self, kind: str, prior: float) -> float:
        """How often a token of a kind is accepted, if those before it are, over all replies."""
        count = self._counts.get(kind)
        return prior if count is None else count.mean(prior)

    def share(self, kind: str) -> float | None:
        """Of the tokens of a kind that count, those accepted; None where there are none."""
        count = self._counts.get(kind)
        return count.accepted / count.judged if count and count.judged else None

    def judged(self, kind: str) -> float:
        """How many observations of a kind count."""
        count = self._counts.get(kind)
        return count.judged if count else 0.0

    def in_this_reply(self, mean: float, better: float = 0.0) -> float:
        """A mean over all replies, shifted by how this one goes and by better, in log odds."""
        mean = min(max(mean, LEAST), 1.0 - LEAST)
        shift = self._bias + better
        if shift == 0.0:
            return mean
        return 1.0 / (1.0 + (1.0 / mean - 1.0) * math.exp(-shift))

    def update_bias(self, estimate: float, accepted: bool) -> None:
        """Shift the estimates of this reply by a judged token that was expected so."""
        self._bias = _BIAS_MEMORY * self._bias + _BIAS_RATE * (accepted - estimate)

    def add(self, kind: str, accepted: bool) -> None:
        """Count one judged token of a kind."""
        self.is_trial = False
        self._counts.setdefault(kind, Count()).add(accepted)

    def decay_bias(self) -> None:
        """Fade the shift at a step that judged nothing."""
        self._bias *= _BIAS_MEMORY
