"""From logits to a next-token distribution, and from that to a token.

Order: logit bias, penalties, top-k, top-p, min-p on the probabilities that these leave, temperature
last, as in llama.cpp and mlx-lm, so that settings carry over.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

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

_ROWS = 64
"""Logits of a group, by whose maxima the highest are found. Of 128k logits 40 take 23 µs, with
groups of 32 a third longer."""


def _left(logits: NDArray[np.float32], settings: SamplingSettings) -> Left:
    """Truncate logits of shape (n_vocab,) by top-k, top-p and min-p in turn."""
    if 0 < settings.top_k < len(logits):
        ids, scores = _most_likely(logits, settings.top_k)
    else:
        highest = float(logits[likeliest(logits)])
        if settings.min_p > 0.0:
            slack = 1e-3 + 1e-6 * abs(highest)  # for rounding to float32; the exact test follows
            ids = np.flatnonzero(logits >= highest + math.log(settings.min_p) - slack)
            scores = logits[ids].astype(np.float64) - highest
            if (kept := _by_min_p(np.exp(scores), settings)) is not None:
                return ids[kept], scores[kept]
        ids, scores = np.arange(len(logits)), logits.astype(np.float64) - highest
    if settings.top_p >= 1.0 and settings.min_p <= 0.0:
        return ids, scores
    probabilities = np.exp(scores)  # they need not sum to 1; their maximum is 1
    kept = _by_min_p(probabilities, settings)
    kept = _by_top_p_first(probabilities, settings) if kept is None else kept
    return ids[kept], scores[kept]


def _most_likely(logits: NDArray[np.float32], count: int) -> Left:
    """The count highest logits, fewer where others are minus infinity; ties go to the lower id.

    The count-th highest of the maxima of disjoint groups is at most the count-th highest of all.
    Strided groups allow maxima row by row, several times as fast as a partition of all logits, and
    only those whose maximum is among the highest are searched.
    """
    rows = _ROWS if len(logits) >= 2 * count * _ROWS else 1
    groups = len(logits) // rows
    grouped, rest = logits[: rows * groups].reshape(rows, groups), logits[rows * groups :]
    maxima = np.maximum.reduce(grouped)
    highest = float(np.maximum.reduce(rest, initial=np.maximum.reduce(maxima)))
    _check_finite(highest)  # not a number, if one is among them
    threshold = np.partition(maxima, -count)[-count]
    reaches = np.greater if threshold == -np.inf else np.greater_equal
    likely = reaches(maxima, threshold).nonzero()[0]
    columns = grouped[:, likely]
    row, column = reaches(columns, threshold).nonzero()
    candidates, values = row * groups + likely[column], columns[row, column]
    if len(rest):
        further = reaches(rest, threshold).nonzero()[0]
        candidates = np.concatenate([candidates, rows * groups + further])
        values = np.concatenate([values, rest[further]])
    if len(candidates) > count:
        order = (-values).argsort(kind="stable")[:count]
        order.sort()
        candidates, values = candidates[order], values[order]
    return candidates, values.astype(np.float64) - highest


def _by_min_p(
    probabilities: NDArray[np.float64], settings: SamplingSettings
) -> NDArray[np.intp] | None:
    """Positions, ascending, that top-p and min-p leave where min-p alone determines it; else None.

    If what min-p leaves has less than top-p of its own mass without the least likely token, top-p
    leaves all of it, whatever the mass of the rest.
    """
    enough = (probabilities >= settings.min_p).nonzero()[0]
    if settings.top_p < 1.0 and len(enough) > 1:
        within = probabilities[enough]
        mass = float(within.sum())
        if mass - float(within.min()) >= settings.top_p * mass:
            return None
    return enough


def _by_top_p_first(
    probabilities: NDArray[np.float64], settings: SamplingSettings
) -> NDArray[np.intp]:
    """Positions, ascending, that top-p and min-p leave, always with the best."""
    kept = _nucleus(probabilities, settings.top_p)
    return kept[probabilities[kept] >= settings.min_p]


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

    @property
    def mode(self) -> int:
        """The likeliest token."""
        return int(self.ids[self.probabilities.argmax()])

    def draw(self, uniform: float) -> int:
        """The token sampled by a uniform number in (0, 1]; never one of probability 0."""
        if len(self.ids) == 1:
            return int(self.ids[0])
        cumulative = self.probabilities.cumsum()
        return int(self.ids[cumulative.searchsorted(uniform * cumulative[-1])])


_CERTAIN = np.ones(1)
_CERTAIN.flags.writeable = False


def point_mass(token: int) -> Distribution:
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
    return truncated(logits, settings)


def truncated(logits: NDArray[np.float32], settings: SamplingSettings) -> Distribution:
    """As warp, of logits that bias and penalties have changed already."""
    if settings.temperature == 0.0:
        return point_mass(likeliest(logits))
    ids, scores = _left(logits, settings)
    if len(ids) == 1:
        return point_mass(int(ids[0]))
    probabilities = np.exp(scores / settings.temperature)
    return Distribution(ids, probabilities / np.add.reduce(probabilities))


def likeliest(logits: NDArray[np.float32]) -> int:
    """The likeliest token by logits of shape (n_vocab,).

    Raises:
        ModelError: the row has no finite maximum.
    """
    best = int(logits.argmax())
    _check_finite(logits.item(best))
    return best


def _check_finite(highest: float) -> None:
    if not math.isfinite(highest):
        raise ModelError(
            "the model gave no usable scores", "not a number among them", "Its file may be damaged."
        )
