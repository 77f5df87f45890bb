"""What samples teach: the vocabulary that is drafted, and what should follow a token."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Arrays
from training.samples import Sample


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

    drafted: NDArray[np.integer]
    numbers: NDArray[np.int32]

    @classmethod
    def of(cls, drafted: NDArray[np.integer], n_vocab: int) -> "Vocabulary":
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
    logs = arrays.along(logits, to.numbers) - arrays.ops.logsumexp(logits, -1)[:, None]
    loss = -(to.shares * logs).sum(-1) * (1.0 - acceptance)
    if acceptance:
        loss = loss - arrays.ops.minimum(logs.exp(), to.shares).sum(-1) * acceptance
    return (loss * to.weights).sum()
