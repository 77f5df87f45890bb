"""Sampling settings of one reply, with independent random streams to draft and to verify."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from backends.base import Warping
from decoding.sampling.adjustment import PENALTY_WINDOW
from decoding.sampling.distribution import Distribution, warp
from decoding.sampling.sampling_settings import SamplingSettings


@dataclass(frozen=True, slots=True)
class Sampler:
    """Warps rows of logits, of the target and of drafters alike.

    Verification and drafting never share uniforms: a draft verified by the number that sampled it
    would be accepted too often.
    """

    settings: SamplingSettings
    prompt_tokens: int = 0
    """Tokens of the prompt, which presence and frequency penalties do not count."""
    verification: np.random.Generator = field(init=False)
    drafting: np.random.Generator = field(init=False)
    _seeds: np.random.SeedSequence = field(init=False, repr=False)
    """Of the reply: each of its streams is spawned from it once."""

    def __post_init__(self) -> None:
        seeds = np.random.SeedSequence(self.settings.seed)
        verification, drafting = seeds.spawn(2)
        object.__setattr__(self, "verification", np.random.default_rng(verification))
        object.__setattr__(self, "drafting", np.random.default_rng(drafting))
        object.__setattr__(self, "_seeds", seeds)

    def ahead(self) -> "Sampler":
        """One of the same settings for drafts made ahead, with random numbers of their own.

        No two calls give the same numbers: what an earlier one drew may have shaped the text, and
        drafts are exact only by numbers that nothing else saw.
        """
        other = replace(self)
        (stream,) = self._seeds.spawn(1)
        object.__setattr__(other, "drafting", np.random.default_rng(stream))
        object.__setattr__(other, "_seeds", self._seeds)
        return other

    @property
    def warping(self) -> Warping | None:
        """The settings for a device; None with a bias or penalties, unknown to a device."""
        settings = self.settings
        if settings.adjusts:
            return None
        return Warping(settings.temperature, settings.top_k, settings.top_p, settings.min_p)

    def distribution(
        self, logits: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int] = ()
    ) -> Distribution:
        """Next-token distribution after history and drafted; logits has shape (n_vocab,)."""
        settings = self.settings
        if not settings.adjusts:
            return warp(logits, settings)
        recent = [*history[-PENALTY_WINDOW:], *drafted]
        if not settings.counts_reply:
            return warp(logits, settings, recent)
        return warp(logits, settings, recent, [*history[self.prompt_tokens :], *drafted])

    def distribution_elsewhere(
        self, logits: NDArray[np.float32], history: Sequence[int], drafted: Sequence[int] = ()
    ) -> Distribution:
        """As distribution, of a drafter with a vocabulary of its own, and texts in its tokens.

        What the settings say of single tokens of the model's vocabulary does not apply there.
        """
        return warp(logits, self.settings.elsewhere, [*history[-PENALTY_WINDOW:], *drafted])
