"""From logits to a next-token distribution, and from that to a token.

Order: logit bias, penalties, top-k, top-p, min-p on the probabilities that these leave, temperature
last, as in llama.cpp and mlx-lm, so that settings carry over.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.base import ModelError
from decoding.sampling.adjustment import adjusted
from decoding.sampling.sampling_settings import SamplingSettings
from decoding.sampling.truncation import within_borders


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Sparse probability distribution over token ids.

    ids: int64, shape (n,), ascending. probabilities: float64, shape (n,), summing to 1.
    """

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def of(self, token: int) -> float:
        """Probability of one token, exactly 0.0 if it is not listed."""
        index = int(self.ids.searchsorted(token))
        if index == len(self.ids) or self.ids[index] != token:
            return 0.0
        return float(self.probabilities[index])

    def at(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Probabilities of many tokens, shape of ids."""
        if np.array_equal(self.ids, ids):
            return self.probabilities
        index = np.minimum(self.ids.searchsorted(ids), len(self.ids) - 1)
        return np.where(self.ids[index] == ids, self.probabilities[index], 0.0)

    def draw(self, uniform: float) -> int:
        """The token sampled by a uniform number in (0, 1]; never one of probability 0."""
        if len(self.ids) == 1:
            return int(self.ids[0])
        cumulative = self.probabilities.cumsum()
        return int(self.ids[cumulative.searchsorted(uniform * cumulative[-1])])


_CERTAIN = np.ones(1)
_CERTAIN.flags.writeable = False


def point_mass(token: int) -> Distribution:
    """All probability on one token."""
    return Distribution(np.array([token]), _CERTAIN)


def from_row(probabilities: NDArray[np.float64]) -> Distribution:
    """The distribution of a dense row of probabilities, shape (n_vocab,)."""
    ids = np.flatnonzero(probabilities)
    return Distribution(ids, probabilities[ids])


def uniform(generator: np.random.Generator) -> float:
    """A uniform number in (0, 1]; 0 would accept a token of probability 0."""
    return 1.0 - generator.random()


def next_uniforms(generator: np.random.Generator, count: int) -> NDArray[np.float64]:
    """The next count numbers of uniform, not consumed; skip_uniforms consumes them."""
    state = generator.bit_generator.state
    numbers = 1.0 - generator.random(count)
    generator.bit_generator.state = state
    return numbers


def skip_uniforms(generator: np.random.Generator, count: int) -> None:
    """Consume the next count numbers of uniform."""
    generator.random(count)


def warp(
    logits: NDArray[np.float32],
    settings: SamplingSettings,
    recent: Sequence[int] = (),
    replied: Sequence[int] = (),
) -> Distribution:
    """The distribution of one row of logits, shape (n_vocab,), under settings.

    recent: tokens before this position, oldest first, for the repetition penalty. replied: those of
    them that the reply has, for the presence and frequency penalties.

    Raises:
        ModelError: the row has no finite maximum.
    """
    if settings.adjusts:
        logits = adjusted(logits, settings, recent, replied)
    best = int(logits.argmax())
    highest = float(logits[best])
    if not math.isfinite(highest):
        raise ModelError(
            "the model gave no usable scores", "not a number among them", "Its file may be damaged."
        )
    if settings.temperature == 0.0:
        return point_mass(best)
    ids, scores = within_borders(logits, highest, settings)
    if len(ids) == 1:
        return point_mass(best)
    probabilities = np.exp(scores / settings.temperature)
    return Distribution(ids, probabilities / probabilities.sum())
