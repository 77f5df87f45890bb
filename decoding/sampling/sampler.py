"""Rows of logits as distributions, under the settings and random numbers of one reply."""

import math
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from backends.base import Logits, ModelError, Warping
from decoding.constraint.constraint import NOTHING_FORCED, Constraint, Evidence, Forced, Mask
from decoding.constraint.grammar import ConstraintError
from decoding.events import TokenLogprob
from decoding.sampling.distribution import (
    PENALTY_WINDOW,
    Distribution,
    adjusted,
    point_mass,
    truncated,
    warp,
)
from decoding.sampling.settings import SamplingSettings


class Sampler:
    """Masks and warps rows of logits, of the target and of drafters alike.

    Verification and drafting never share uniforms: a draft verified by the number that sampled it
    would be accepted too often.

    prompt_tokens: tokens before the reply, which presence and frequency penalties do not count.
    constraint: which tokens of the reply may follow, None if all may. begun: tokens of the reply
    that there are, which may have been drawn with this seed: the others need numbers of their own.
    """

    def __init__(
        self,
        settings: SamplingSettings,
        prompt_tokens: int = 0,
        constraint: Constraint | None = None,
        begun: int = 0,
    ) -> None:
        self.settings = settings
        self.prompt_tokens = prompt_tokens
        self.constraint = constraint
        self._adjusts = settings.adjusts
        of_part = (begun,) if begun else ()
        seeds = np.random.SeedSequence(settings.seed, spawn_key=of_part).spawn(2)
        self.verification, self.drafting = map(np.random.default_rng, seeds)

    def at(self, temperature: float) -> "Sampler":
        """One of the same random numbers at another temperature."""
        other = copy(self)
        other.settings = replace(self.settings, temperature=temperature)
        return other

    @property
    def warping(self) -> Warping | None:
        """The settings for a device; None with what a device does not know.

        That is a bias, penalties and a constraint.
        """
        settings = self.settings
        if self._adjusts or self.constraint is not None:
            return None
        return Warping(settings.temperature, settings.top_k, settings.top_p, settings.min_p)

    def distribution(
        self, logits: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int] = ()
    ) -> Distribution:
        """Next-token distribution after history and drafted; logits has shape (n_vocab,)."""
        return truncated(self.adjusted(logits, history, drafted), self.settings)

    def adjusted(
        self, logits: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int] = ()
    ) -> NDArray[np.float32]:
        """Logits after history and drafted of the tokens that may follow, with bias and penalties.

        Tokens that may not follow are masked first, so that what is warped is a distribution over
        those that may.
        """
        settings = self.settings
        if self.constraint is not None:
            allowed = self.constraint.allowed(self._after_accepted(history, drafted))
            logits = logits if allowed is None else masked(logits, allowed)
        if not self._adjusts:
            return logits
        replied = history[self.prompt_tokens :] if settings.counts_reply else ()
        recent = [*history[-PENALTY_WINDOW:], *drafted]
        return adjusted(logits, settings, recent, [*replied, *drafted])

    def q_draft(
        self, logits: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int] = ()
    ) -> Distribution | None:
        """As distribution, of a drafter; None where the grammar or the row fails along the draft.

        The draft ends there. What was drawn stays: that it ends depends on earlier tokens alone,
        but to throw it away for what was drawn would favour other tokens.

        Raises:
            ModelError: the row fails right after history, so that nothing was drawn.
        """
        return _unless_drawn(lambda: self.distribution(logits, history, drafted), drafted)

    def q_draft_elsewhere(
        self, logits: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int] = ()
    ) -> Distribution | None:
        """As q_draft, of a drafter with a vocabulary of its own, and texts in its tokens.

        What the settings and the constraint say of single tokens of the model's vocabulary does not
        apply there.
        """
        recent, settings = [*history[-PENALTY_WINDOW:], *drafted], self.settings.elsewhere
        return _unless_drawn(lambda: warp(logits, settings, recent), drafted)

    def count_allowed(self, history: Sequence[int], tokens: Sequence[int]) -> int:
        """How many of the first of tokens may follow history."""
        if self.constraint is None:
            return len(tokens)
        return self.constraint.count_allowed(self._after_accepted(history), tokens)

    def forced(self, history: Sequence[int], limit: int) -> Forced:
        """At most limit tokens of the only text that may follow history."""
        if self.constraint is None:
            return NOTHING_FORCED
        return self.constraint.forced(self._after_accepted(history), limit)

    def evidence(self, history: Sequence[int], tokens: Sequence[int]) -> Sequence[Evidence]:
        """What speaks for each of tokens after history; nothing is known without a constraint."""
        if self.constraint is None:
            return (Evidence.FURTHER,) * len(tokens)
        return self.constraint.evidence(self._after_accepted(history), tokens)

    def follow(self, history: Sequence[int]) -> None:
        """Advance the constraint to the end of history, all of which was emitted.

        Raises:
            ModelError: a token of it was not allowed.
        """
        if self.constraint is not None and (tokens := self._after_accepted(history)):
            self.constraint.accept(tokens)

    def _after_accepted(self, history: Sequence[int], drafted: Sequence[int] = ()) -> list[int]:
        """What follows the accepted tokens: guesses at the end of history, then drafted."""
        assert self.constraint is not None, "only a constraint has a place in the reply"
        return [*history[self.prompt_tokens + self.constraint.length :], *drafted]


def _unless_drawn(
    distribution: Callable[[], Distribution], drafted: Sequence[int]
) -> Distribution | None:
    try:
        return distribution()
    except ModelError as error:
        if not drafted and not isinstance(error, ConstraintError):
            raise
        return None


def masked(logits: NDArray[np.float32], allowed: Mask) -> NDArray[np.float32]:
    """Logits with minus infinity where a token is not allowed.

    Unchanged if no allowed token has a score: such a row follows drafted tokens that may not
    follow, of which nothing is accepted, or belongs to a drafter that lacks those tokens.
    """
    count = min(len(logits), len(allowed))  # a row may have padding at its end, or lack some
    rest = np.full_like(logits, -np.inf)
    np.copyto(rest[:count], logits[:count], where=allowed[:count])
    return rest if rest.max() > -np.inf else logits


NOTHING = -1
"""In place of the token after a text that none can follow, as its row or the grammar fails.

A failure is so one more outcome, which nobody drafts: a rule accepts nothing beyond it, and it is
drawn only where the verdict ends there.
"""


class WarpedRows:
    """Distributions after history and after each prefix of drafted, warped on request."""

    def __init__(
        self, rows: Logits, sampler: Sampler, history: Sequence[int], drafted: Sequence[int]
    ) -> None:
        self._rows = rows
        self._sampler = sampler
        self._history = history
        self._drafted = drafted
        self.requested: list[Distribution] = []
        """The distributions requested so far, in order."""

    def __getitem__(self, i: int) -> Distribution:
        row, drafted = self._rows[i], self._drafted[:i]
        self.requested.append(_distribution(self._sampler, row, self._history, drafted))
        return self.requested[-1]


@dataclass(frozen=True, slots=True, eq=False)
class WarpedTreeRows:
    """Distributions after a path of nodes of a drafted tree; row 0 follows the history."""

    rows: Logits
    sampler: Sampler
    history: Sequence[int]
    drafted: Sequence[int]

    def __getitem__(self, path: Sequence[int]) -> Distribution:
        row = self.rows[1 + path[-1] if path else 0]
        drafted = [self.drafted[node] for node in path]
        return _distribution(self.sampler, row, self.history, drafted)


def _distribution(
    sampler: Sampler, row: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int]
) -> Distribution:
    try:
        return sampler.distribution(row, history, drafted)
    except ModelError:
        return point_mass(NOTHING)


def logprobs(
    rows: Logits, places: Sequence[int], tokens: Iterable[int], count: int | None
) -> tuple[TokenLogprob, ...]:
    """Log probabilities of tokens, each by the row at its place, and of the count likeliest.

    count: None where none are asked for.
    """
    if count is None:
        return ()
    return tuple(
        _logprob(rows[place], token, count) for place, token in zip(places, tokens, strict=True)
    )


def _logprob(row: NDArray[np.float32], token: int, count: int) -> TokenLogprob:
    logits = row.astype(np.float64)
    highest = logits.max()
    log_mass = highest + math.log(np.exp(logits - highest).sum())
    top = ((one, float(logits[one] - log_mass)) for one in _likeliest(logits, count))
    return TokenLogprob(token, float(logits[token] - log_mass), tuple(top))


def _likeliest(logits: NDArray[np.float64], count: int) -> list[int]:
    """The count likeliest possible tokens, the likeliest first; of equals the lower ids."""
    count = min(count, len(logits))
    if count <= 0:
        return []
    threshold = np.partition(logits, -count)[-count]
    ids = np.flatnonzero((logits >= threshold) & (logits > -np.inf))
    return ids[np.argsort(-logits[ids], kind="stable")[:count]].tolist()
