"""What samples teach: the vocabulary that is drafted, and what should follow a token."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Arrays, Weights
from training.samples import Sample

Numbers = NDArray[np.int32]


def drafted_tokens(samples: Iterable[Sample], most: int, n_vocab: int) -> NDArray[np.int64]:
    """The commonest tokens of answers and of what was likely there, in order of their ids.

    The user's chats do not count: a rare word of theirs would show in the list.
    """
    counts = np.zeros(n_vocab)
    for sample in samples:
        if not sample.is_private:
            shown = slice(sample.first - 1, None)
            counts += np.bincount(
                sample.likely[shown].ravel(), np.exp(sample.logs[shown]).ravel(), n_vocab
            )
    return np.sort(np.argsort(-counts, kind="stable")[:most]).astype(np.int64)


def spreads(samples: Sequence[Sample]) -> NDArray[np.float32]:
    """Root mean square of each state, without a prompt's first token, which is far off."""
    found = [(sample.states[1:] ** 2).mean((0, 2)) for sample in samples]
    return np.sqrt(np.mean(found, axis=0)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """drafted: ids of the tokens, in order; numbers: of each id among them, -1 for none."""

    drafted: NDArray[np.int64]
    numbers: Numbers

    @classmethod
    def of(cls, drafted: NDArray[np.int64], n_vocab: int) -> "Vocabulary":
        numbers = np.full(n_vocab, -1, np.int32)
        numbers[drafted] = np.arange(len(drafted))
        return cls(drafted, numbers)


class Taught(NamedTuple):
    """What should follow, at N places.

    rows: of a batch laid flat, (N,). numbers, shares: of K tokens, (N, K). weights: (N,), of each
    sample the same in all.
    """

    rows: Array
    numbers: Array
    shares: Array
    weights: Array


def taught(
    arrays: Arrays, samples: Sequence[Sample], vocabulary: Vocabulary, length: int, ahead: int
) -> Taught:
    """What should follow the token ahead of each place that an answer is drafted from.

    length: places of each sample in the batch. Places are left out where the likeliest token is
    not drafted. The shares are of what is drafted alone.
    """
    rows = list[NDArray[Any]]()
    numbers, shares, weights = rows.copy(), rows.copy(), rows.copy()
    for row, sample in enumerate(samples):
        places = np.arange(sample.first - 1, len(sample.tokens) - 1 - ahead)
        found = vocabulary.numbers[sample.likely[places + ahead]]
        kept = found[:, 0] >= 0
        places, found = places[kept], found[kept]
        share = np.exp(sample.logs[places + ahead]) * (found >= 0)
        rows.append(row * length + places)
        numbers.append(np.maximum(found, 0))
        shares.append(share / share.sum(-1, keepdims=True))
        weights.append(np.full(len(places), 1.0 / max(len(places), 1)))
    return Taught(
        arrays.array(np.concatenate(rows).astype(np.int32)),
        arrays.array(np.concatenate(numbers).astype(np.int32)),
        arrays.array(np.concatenate(shares).astype(np.float32)),
        arrays.array((np.concatenate(weights) / len(samples)).astype(np.float32)),
    )


def missed(arrays: Arrays, logits: Array, to: Taught, acceptance: float) -> Array:
    """The mean of the cross-entropy, and of the share that sampling would reject.

    acceptance: weight of the latter, the former has the rest.
    """
    logs = arrays.along(logits, to.numbers) - arrays.log_sum_exp(logits)[:, None]
    loss = -(to.shares * logs).sum(-1) * (1.0 - acceptance)
    if acceptance:
        loss = loss - arrays.minimum(logs.exp(), to.shares).sum(-1) * acceptance
    return (loss * to.weights).sum()


class Output:
    """The layer that tells tokens from normed states.

    It has the target's rows, or a rank: it is trained then, and begins as their best approximation
    (SlimSpec, arXiv 2605.10453).
    """

    def __init__(self, arrays: Arrays, rows: NDArray[np.float16], rank: int) -> None:
        self._arrays, self._rank, self._rows = arrays, rank, rows
        self._fixed = None if rank else arrays.array(rows.astype(np.float32))

    def first_weights(self) -> dict[str, NDArray[np.float32]]:
        if not self._rank:
            return {}
        rows = self._rows.astype(np.float32)
        directions = np.linalg.eigh(rows.T @ rows)[1][:, : -self._rank - 1 : -1]
        return {
            "lm_head.down": np.ascontiguousarray(directions.T),
            "lm_head.up": rows @ directions,
        }

    def logits(self, weights: Weights, states: Array) -> Array:
        if self._fixed is not None:
            return self._arrays.product(states, self._fixed)
        narrow = self._arrays.product(states, weights["lm_head.down"])
        return self._arrays.product(narrow, weights["lm_head.up"])


class Texts(NamedTuple):
    """Answers to be drafted: numbers of their tokens (B, T + depth), -1 for what is not drafted.

    places: that are drafted from.
    """

    numbers: Numbers
    places: NDArray[np.bool_]


def texts(samples: Sequence[Sample], vocabulary: Vocabulary, length: int, depth: int) -> Texts:
    """numbers[:, i]: of the token after the next one of place i."""
    numbers = np.full((len(samples), length + depth), -1, np.int32)
    places = np.zeros((len(samples), length), bool)
    for row, sample in enumerate(samples):
        end = len(sample.tokens) - 2
        numbers[row, :end] = vocabulary.numbers[sample.tokens[2:]]
        places[row, sample.first - 1 : max(end - depth + 1, 0)] = True
    return Texts(numbers, places)


def rolled_out(
    of: Texts, depth: int, guess: Callable[[Numbers | None], Numbers]
) -> tuple[float, int]:
    """Draft greedily from every place at once; guess: numbers (B, T), told those drafted last.

    Returns the tokens accepted in all, and the number of drafts.
    """
    stands, total, before = of.places.copy(), 0, None
    for position in range(depth):
        before = guess(before)
        stands &= before == of.numbers[:, position : position + before.shape[1]]
        total += int(stands.sum())
    return float(total), int(of.places.sum())
