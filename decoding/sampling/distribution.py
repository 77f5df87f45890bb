"""From logits to a next-token distribution, and from that to a token.

Order: logit bias, penalties, top-k, top-p, min-p on the probabilities that these leave, temperature
last, as in llama.cpp and mlx-lm, so that settings carry over.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from backends.base import ModelError
from decoding.sampling.settings import SamplingSettings

# Changes to a row of logits before it is truncated: logit bias and penalties.
#
# Order: bias, repetition penalty, presence and frequency penalties, as in llama.cpp and mlx-lm.

PENALTY_WINDOW = 64
"""Number of last tokens that the repetition penalty considers."""

_BAN = -100.0
"""Bias that bans a token: adding it would leave the token a chance where no other has one."""


def adjusted(
    logits: NDArray[np.float32],
    settings: SamplingSettings,
    recent: Sequence[int],
    replied: Sequence[int],
) -> NDArray[np.float32]:
    """A changed copy of logits of shape (n_vocab,); tokens beyond them are ignored.

    Where every token that can follow is banned, as a grammar may leave only such, none is.

    recent: tokens before this position, oldest first. replied: those of them that the reply has.
    """
    changed = logits.copy()
    n_vocab = len(logits)
    if settings.logit_bias:
        ids, bias = _bias(settings.logit_bias)
        is_known = ids < n_vocab
        changed[ids[is_known]] += bias[is_known]
        if changed.max() == -np.inf:  # all that could follow are banned
            changed[:] = logits
    if settings.repeat_penalty != 1.0:
        _penalise_repetition(changed, recent[-PENALTY_WINDOW:], settings.repeat_penalty)
    if settings.counts_reply and replied:
        counts = np.bincount(replied)[:n_vocab]
        ids = np.flatnonzero(counts)
        penalty = settings.presence_penalty + settings.frequency_penalty * counts[ids]
        changed[ids] -= penalty.astype(np.float32)
    return changed


@lru_cache(maxsize=8)
def _bias(pairs: tuple[tuple[int, float], ...]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Tokens and what is added to their logits; of equal tokens the last one counts."""
    by_token = {token: -np.inf if bias <= _BAN else bias for token, bias in pairs}
    ids, values = list(by_token), list(by_token.values())
    return np.array(ids, dtype=np.int64), np.array(values, dtype=np.float32)


def _penalise_repetition(
    logits: NDArray[np.float32], tokens: Sequence[int], penalty: float
) -> None:
    """The repetition penalty of CTRL (Keskar et al., 2019), section 4.1, in place."""
    known = {token for token in tokens if token < len(logits)}
    ids = np.fromiter(known, dtype=np.int64)
    values = logits[ids]
    logits[ids] = np.where(values > 0, values / penalty, values * penalty)


_NUCLEUS_START = 256

Left = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Remaining token ids, ascending, and the logit of each relative to the highest."""


class Borders(Protocol):
    """Truncation settings, as in decoding.sampling.distribution.SamplingSettings."""

    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def min_p(self) -> float: ...


def within_borders(logits: NDArray[np.float32], highest: float, borders: Borders) -> Left:
    """Truncate logits of shape (n_vocab,), given the highest, which is finite."""
    return _likeliest(logits, highest, borders) or _cut(logits, highest, borders)


def _likeliest(logits: NDArray[np.float32], highest: float, borders: Borders) -> Left | None:
    """The result of _cut where min-p alone determines it; None elsewhere.

    If min-p leaves at most top-k tokens, and they have less than top-p of their own mass without
    the least likely one, top-k and top-p leave all of them, whatever the mass of the rest. That
    settles 102 of 160 rows of the bundled model at the default settings, and takes 0.16 ms on
    average instead of 0.25.
    """
    if borders.min_p <= 0.0:
        return None
    slack = 1e-3 + 1e-6 * abs(highest)  # for rounding to float32; the exact test follows
    ids = np.flatnonzero(logits >= highest + math.log(borders.min_p) - slack)
    if len(ids) > (borders.top_k or len(logits)):
        return None
    scores = logits[ids].astype(np.float64) - highest
    if len(ids) == 1:
        return ids, scores
    probabilities = np.exp(scores)
    enough = probabilities >= borders.min_p
    if not enough.all():
        ids, scores, probabilities = ids[enough], scores[enough], probabilities[enough]
    mass = float(probabilities.sum())
    if mass - float(probabilities.min()) >= borders.top_p * mass:
        return None
    return ids, scores


def _cut(logits: NDArray[np.float32], highest: float, borders: Borders) -> Left:
    """Truncate by top-k, top-p and min-p in turn."""
    ids, scores = _most_likely(logits, borders.top_k)
    scores -= highest
    kept = _kept(np.exp(scores), borders)
    return (ids, scores) if kept is None else (ids[kept], scores[kept])


def _most_likely(
    logits: NDArray[np.float32], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids and values of the count highest logits, ascending by id; all of them for count 0.

    Ties go to the lower id.
    """
    n_vocab = len(logits)
    if count <= 0 or count >= n_vocab:
        return np.arange(n_vocab), logits.astype(np.float64)
    candidates = _above_threshold(logits, count)
    values = logits[candidates]
    surplus = len(candidates) - count
    if surplus > 0:
        order = np.argsort(-values, kind="stable")[:count]
        order.sort()
        candidates, values = candidates[order], values[order]
    return candidates, values.astype(np.float64)


def _above_threshold(logits: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Ids of a superset of the count highest logits, small for large vocabularies.

    The count-th highest of the maxima of disjoint groups is at most the count-th highest of all;
    strided groups allow maxima row by row, far faster than a partition of all logits.
    """
    groups = len(logits) // 64
    if groups < 2 * count:
        threshold = np.partition(logits, -count)[-count]
    else:
        maxima = logits[: 64 * groups].reshape(64, groups).max(axis=0)
        threshold = np.partition(maxima, -count)[-count]
    return np.flatnonzero(logits >= threshold)


def _kept(probabilities: NDArray[np.float64], borders: Borders) -> NDArray[np.intp] | None:
    """Positions, ascending, that top-p and min-p leave, always with the best; None for all.

    probabilities need not sum to 1; their maximum is 1.
    """
    if borders.top_p >= 1.0 and borders.min_p <= 0.0:
        return None
    kept: NDArray[np.intp] | None = None
    if borders.top_p < 1.0:
        kept = _nucleus(probabilities, borders.top_p)
    if borders.min_p > 0.0:
        within = probabilities if kept is None else probabilities[kept]
        enough = np.flatnonzero(within >= borders.min_p)
        kept = enough if kept is None else kept[enough]
    return kept


def _nucleus(probabilities: NDArray[np.float64], top_p: float) -> NDArray[np.intp]:
    """The fewest likeliest positions with top_p of the mass (Holtzman et al., 2020, 3.1)."""
    wanted = top_p * probabilities.sum()
    count = min(_NUCLEUS_START, len(probabilities))
    while True:
        order = _descending(probabilities, count)
        cumulative = probabilities[order].cumsum()
        if cumulative[-1] >= wanted or count == len(probabilities):
            break
        count = min(8 * count, len(probabilities))
    needed = int((cumulative < wanted).sum()) + 1
    return np.sort(order[:needed])


def _descending(values: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Positions of the count highest values, highest first; of equals the lower ones."""
    if count == len(values):
        return np.argsort(-values, kind="stable")
    threshold = np.partition(values, -count)[-count]  # argpartition would pick any of equals
    highest = np.flatnonzero(values >= threshold)
    return highest[np.argsort(-values[highest], kind="stable")[:count]]


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
