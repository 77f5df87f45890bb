"""Acceptance of tokens by key: decayed counts, learned from every verification."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

_MEMORY = 0.985
"""Share of a count that each new observation keeps: about the last 60 matter. A guess; not
measured."""

_PRIOR_WEIGHT = 10.0
"""Observations that a prior counts for, before it fades. A guess; not measured."""

_BIAS_RATE = 0.12
"""Change of a reply's bias, in log odds, by a token that was fully unexpected, so that a text that
suits a drafter shows within a few tokens. A guess; not measured."""

_BIAS_MEMORY = 0.98
"""Share of the bias kept per judged token or step: about the last 50 matter. A guess; not
measured."""

_CARRIED = 20.0
"""Most observations that counts of earlier sessions count for, a third of a full count, as the next
text may differ. A guess; not measured."""

LEAST = 0.005
"""Distance that estimates keep from 0 and 1, so that log odds are finite: a token in 200."""


@dataclass(slots=True)
class Count:
    """Decayed counts of tokens of one key."""

    accepted: float = 0.0
    judged: float = 0.0

    def add(self, accepted: bool) -> None:
        """Count one judged token."""
        self.accepted = self.accepted * _MEMORY + accepted
        self.judged = self.judged * _MEMORY + 1.0

    def mean(self, prior: float) -> float:
        """The posterior mean under a prior that fades as observations come in."""
        weight = _PRIOR_WEIGHT * max(0.0, 1.0 - self.judged * (1.0 - _MEMORY))
        return (self.accepted + weight * prior) / (self.judged + weight)


class Acceptance:
    """Acceptance estimates by key, shifted by the bias of the present reply.

    A key is any string; its count is a Beta posterior with decay. The bias, in log odds, is shared
    by all keys, so that a text that suits the drafter shows within a few tokens. is_trial: whether
    counts are the expectation of a trial, as no token was judged yet.
    """

    def __init__(
        self, counts: Mapping[str, tuple[float, float]] | None = None, *, is_trial: bool = False
    ) -> None:
        self.is_trial = is_trial
        self._counts: dict[str, Count] = {}
        self._bias = 0.0
        for key, (accepted, judged) in (counts or {}).items():
            share = min(1.0, _CARRIED / judged) if judged > 0 else 0.0
            self._counts[key] = Count(accepted * share, judged * share)

    def counts(self) -> dict[str, tuple[float, float]]:
        """Accepted and judged tokens by key, to be stored."""
        return {key: (count.accepted, count.judged) for key, count in self._counts.items()}

    def begin(self) -> None:
        """Start a reply, without the bias of the last one."""
        self._bias = 0.0

    def mean(self, key: str, prior: float) -> float:
        """Acceptance of a key over all replies, given that the tokens before are accepted."""
        count = self._counts.get(key)
        return prior if count is None else count.mean(prior)

    def share(self, key: str) -> float | None:
        """Observed share of accepted tokens of a key; None without observations."""
        count = self._counts.get(key)
        return count.accepted / count.judged if count and count.judged else None

    def judged(self, key: str) -> float:
        """Decayed number of observations of a key."""
        count = self._counts.get(key)
        return count.judged if count else 0.0

    def in_this_reply(self, mean: float, better: float = 0.0) -> float:
        """A mean over all replies, shifted by this reply's bias and by better, in log odds."""
        mean = min(max(mean, LEAST), 1.0 - LEAST)
        shift = self._bias + better
        if shift == 0.0:
            return mean
        return 1.0 / (1.0 + (1.0 / mean - 1.0) * math.exp(-shift))

    def update_bias(self, estimate: float, accepted: bool) -> None:
        """Update this reply's bias by a judged token and its estimate."""
        self._bias = _BIAS_MEMORY * self._bias + _BIAS_RATE * (accepted - estimate)

    def add(self, key: str, accepted: bool) -> None:
        """Count one judged token of a key."""
        self.is_trial = False
        self._counts.setdefault(key, Count()).add(accepted)

    def decay_bias(self) -> None:
        """Fade the bias at a step that judged nothing."""
        self._bias *= _BIAS_MEMORY
