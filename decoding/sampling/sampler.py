"""Sampling settings of one reply, with independent random streams to draft and to verify."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from backends.base import ModelError, Warping
from decoding.constraint.constraint import NOTHING_FORCED, Constraint, Forced, Grounds, Mask
from decoding.constraint.constraint_error import ConstraintError
from decoding.sampling.adjustment import PENALTY_WINDOW
from decoding.sampling.distribution import Distribution, warp
from decoding.sampling.sampling_settings import SamplingSettings


class Sampler:
    """Masks and warps rows of logits, of the target and of drafters alike.

    Verification and drafting never share uniforms: a draft verified by the number that sampled it
    would be accepted too often.

    prompt_tokens: tokens before the reply, which presence and frequency penalties do not count.
    constraint: which tokens of the reply may follow, None if all may.
    """

    def __init__(
        self,
        settings: SamplingSettings,
        prompt_tokens: int = 0,
        constraint: Constraint | None = None,
    ) -> None:
        self.settings = settings
        self.prompt_tokens = prompt_tokens
        self.constraint = constraint
        self._seeds = np.random.SeedSequence(settings.seed)
        """Of the reply: each stream of it and of all samplers made from it is spawned once."""
        self.verification, self.drafting = map(np.random.default_rng, self._seeds.spawn(2))

    def ahead(self) -> "Sampler":
        """One of the same settings for drafts made ahead, with random numbers of their own.

        No two calls give the same numbers: what an earlier one drew may have shaped the text, and
        drafts are exact only by numbers that nothing else saw.
        """
        other = copy(self)
        (stream,) = self._seeds.spawn(1)
        other.drafting = np.random.default_rng(stream)
        return other

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
        if settings.adjusts or self.constraint is not None:
            return None
        return Warping(settings.temperature, settings.top_k, settings.top_p, settings.min_p)

    def distribution(
        self, logits: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int] = ()
    ) -> Distribution:
        """Next-token distribution after history and drafted; logits has shape (n_vocab,).

        Tokens that may not follow are masked first, so that what is warped is a distribution over
        those that may.
        """
        settings = self.settings
        if self.constraint is not None:
            allowed = self.constraint.allowed(self._after_accepted(history, drafted))
            logits = logits if allowed is None else masked(logits, allowed)
        if not settings.adjusts:
            return warp(logits, settings)
        recent = [*history[-PENALTY_WINDOW:], *drafted]
        if not settings.counts_reply:
            return warp(logits, settings, recent)
        return warp(logits, settings, recent, [*history[self.prompt_tokens :], *drafted])

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

    def grounds(self, history: Sequence[int], tokens: Sequence[int]) -> Sequence[Grounds]:
        """What speaks for each of tokens after history; nothing is known without a constraint."""
        if self.constraint is None:
            return (Grounds.FURTHER,) * len(tokens)
        return self.constraint.grounds(self._after_accepted(history), tokens)

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
