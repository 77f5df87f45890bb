"""What samples teach: the vocabulary that is drafted, and what should follow a token."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Arrays
from training.samples import Sample


class Vocabulary(NamedTuple):
    """drafted: ids of the tokens, in order; numbers: of each id among them, -1 for none."""

    drafted: NDArray[np.int64]
    numbers: NDArray[np.int32]

    @classmethod
    def of(cls, ids: NDArray[Any], n_vocab: int) -> "Vocabulary":
        drafted = np.unique(ids).astype(np.int64)
        numbers = np.full(n_vocab, -1, np.int32)
        numbers[drafted] = np.arange(len(drafted))
        return cls(drafted, numbers)

    @classmethod
    def commonest(cls, samples: Iterable[Sample], most: int, n_vocab: int) -> "Vocabulary":
        """Of tokens of answers, and of what was likely there.

        The user's chats do not count: a rare word of theirs would show in the list.
        """
        counts = np.zeros(n_vocab)
        for sample in samples:
            if not sample.is_private:
                shown = slice(sample.first - 1, None)
                likely, logs = sample.likely[shown].ravel(), sample.logs[shown].ravel()
                counts += np.bincount(likely, np.exp(logs), n_vocab)
        return cls.of(np.argsort(-counts, kind="stable")[:most], n_vocab)


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
    arrays: Arrays, samples: Sequence[Sample], vocabulary: Vocabulary, depth: int
) -> Iterator[Taught]:
    """What should follow, by position in a draft, each place that an answer is drafted from.

    Places are left out where the likeliest token is not drafted. The shares are of what is drafted
    alone.
    """
    length = max(len(sample.tokens) for sample in samples) - 1
    firsts, lengths = (
        np.array(sizes)[:, np.newaxis]
        for sizes in zip(*((sample.first, len(sample.tokens)) for sample in samples), strict=True)
    )
    numbers = vocabulary.numbers[padded([sample.likely for sample in samples], 1 + length + depth)]
    shares = np.exp(padded([sample.logs for sample in samples], 1 + length + depth))
    is_shown = (numbers[..., 0] >= 0) & (np.arange(1 + length + depth) < lengths - 1)
    for position in range(depth):
        ahead = slice(1 + position, 1 + position + length)
        places = is_shown[:, ahead] & (np.arange(length) >= firsts - 1)
        found, counts = numbers[:, ahead][places], places.sum(1)
        share = shares[:, ahead][places] * (found >= 0)
        weights = np.repeat(1.0 / np.maximum(counts, 1) / len(samples), counts)
        yield Taught(
            arrays.array(np.flatnonzero(places).astype(np.int32)),
            arrays.array(np.maximum(found, 0)),
            arrays.array((share / share.sum(-1, keepdims=True)).astype(np.float32)),
            arrays.array(weights.astype(np.float32)),
        )


def padded(parts: Sequence[NDArray[Any]], length: int) -> NDArray[Any]:
    """Arrays of (T, …) as one of (B, length, …), with zeros behind."""
    found = np.zeros((len(parts), length, *parts[0].shape[1:]), parts[0].dtype)
    for row, part in zip(found, parts, strict=True):
        row[: len(part)] = part
    return found


def missed(arrays: Arrays, logits: Array, to: Taught, acceptance: float) -> Array:
    """The mean of the cross-entropy, and of the share that sampling would reject.

    acceptance: weight of the latter, the former has the rest.
    """
    logs = arrays.along(logits, to.numbers) - arrays.ops.logsumexp(logits, -1)[:, None]
    loss = -(to.shares * logs).sum(-1) * (1.0 - acceptance)
    if acceptance:
        loss = loss - arrays.ops.minimum(logs.exp(), to.shares).sum(-1) * acceptance
    return (loss * to.weights).sum()
