"""Fits a head to replies by gradient descent, in numpy.

The training-time test of EAGLE-3 (arXiv 2503.01840, section 3.2), one step deep: each batch is run
on the model's own states and once more on what the head made of them, so that it learns to go on
from its own guesses. The first pass's keys and values count as given in the second.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scripts.heads.eagle3_layer import (
    Array,
    Pass,
    Weights,
    backward,
    forward,
    guessed_back,
    guessed_states,
)
from scripts.heads.head_file import Source
from scripts.heads.replies import Reply

_RATE, _WARM_UP = 1e-3, 20
"""Adam's step, and the number of steps until it is reached. Of three rates tried (docs)."""
_CLIP = 0.5
_FIRST, _SECOND = 0.9, 0.95
_GUESSED = 0.8
"""Weight of the second pass, as in EAGLE-3's code."""
_BATCH = 2


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts of one length: inputs (B, T, 3E), embeddings of each next token (B, T, E).

    wanted: number, among the drafted ones, of the token after the next; -1 for none.
    """

    inputs: Array
    embedded: Array
    wanted: NDArray[np.int64]


def drafted_tokens(replies: Sequence[Reply], most: int, n_vocab: int) -> NDArray[np.int64]:
    """The commonest tokens of replies, and the first of the vocabulary, in order of their numbers.

    Vocabularies of byte pairs begin with the tokens that were commonest where they were made.
    """
    said = np.concatenate([reply.tokens[reply.first :] for reply in replies])
    counts = np.bincount(said, minlength=n_vocab)
    return np.sort(np.argsort(-counts, kind="stable")[:most]).astype(np.int64)


def spreads(replies: Sequence[Reply], width: int) -> Array:
    """Root mean square of each layer's input, without a prompt's first token, which is far off."""
    rows = np.vstack([reply.inputs[1:] for reply in replies])
    return np.sqrt((rows.reshape(len(rows), -1, width) ** 2).mean((0, 2)))


def first_weights(source: Source, spread: Array) -> Weights:
    """The last layer's weights, reading the last tap alone; embeddings count for nothing yet."""
    random = np.random.default_rng(0)
    width, last = source.width, source.last
    weights = {name: values.copy() for name, values in last.items()}
    weights["attn_norm_2"] = weights["attn_norm"]
    weights["attn_norm"] = np.ones(width, np.float32)
    for name in ("attn_q", "attn_k", "attn_v"):
        of_embedding = random.normal(0.0, 0.01, last[name].shape).astype(np.float32)
        weights[name] = np.hstack([of_embedding, last[name]])
    for name in ("attn_output", "ffn_down"):
        weights[name] = weights[name] / spread[-1]
    weights["output_norm"] = source.output_norm.copy()
    identity = np.eye(width, dtype=np.float32)
    weights["fc"] = np.hstack([*[np.zeros_like(identity)] * (len(spread) - 1), identity])
    return weights


def train(
    source: Source, replies: Sequence[Reply], drafted: NDArray[np.int64], epochs: int
) -> Iterator[tuple[float, Weights]]:
    """Fit; yields the mean loss of each epoch, and weights as a file has them."""
    spread = spreads(replies, source.width)
    weights = first_weights(source, spread)
    output = source.output[drafted]
    numbers = np.full(len(source.embeddings), -1, np.int64)
    numbers[drafted] = np.arange(len(drafted))
    random = np.random.default_rng(1)
    steps = epochs * -(-len(replies) // _BATCH)
    adam = Adam(weights, steps)
    for _ in range(epochs):
        losses: list[float] = []
        order: list[int] = random.permutation(len(replies)).tolist()
        for start in range(0, len(order), _BATCH):
            chosen = [replies[number] for number in order[start : start + _BATCH]]
            batch = _batch(chosen, source.embeddings, numbers, spread)
            loss, gradients = gradient(weights, source, output, batch)
            adam.step(gradients)
            losses.append(loss)
        yield float(np.mean(losses)), _for_file(weights, spread)


def gradient(
    weights: Weights, source: Source, output: Array, batch: Batch
) -> tuple[float, Weights]:
    """Cross-entropy of both passes, and the gradients of all weights."""
    shape = source.shape
    fused = batch.inputs @ weights["fc"].T
    first = forward(weights, shape, batch.embedded, fused)
    loss, wanted = _cross_entropy(first, output, batch.wanted, 1.0)
    second = forward(weights, shape, batch.embedded, guessed_states(first), first.cache)
    _, again = _cross_entropy(second, output, batch.wanted, _GUESSED)
    of_second, of_guessed = backward(weights, shape, second, again)
    gradients, of_fused = backward(weights, shape, first, wanted, guessed_back(of_guessed))
    for name, values in of_second.items():
        gradients[name] += values
    rows = of_fused.reshape(-1, of_fused.shape[-1])
    gradients["fc"] = rows.T @ batch.inputs.reshape(len(rows), -1)
    return loss, gradients


def _cross_entropy(
    of: Pass, output: Array, wanted: NDArray[np.int64], weight: float
) -> tuple[float, Array]:
    """Mean loss at the positions with a wanted token, and the gradient of the pass's output."""
    places = np.nonzero(wanted >= 0)
    logits = of.output[places] @ output.T
    logits -= logits.max(-1, keepdims=True)
    shares = np.exp(logits)
    shares /= shares.sum(-1, keepdims=True)
    rows = np.arange(len(shares)), wanted[places]
    loss = float(-np.log(shares[rows] + 1e-30).mean())
    shares[rows] -= 1.0
    gradient = np.zeros_like(of.output)
    gradient[places] = shares @ output * np.float32(weight / len(shares))
    return loss, gradient


def _batch(
    replies: Sequence[Reply], embeddings: Array, numbers: NDArray[np.int64], spread: Array
) -> Batch:
    """Replies side by side, filled up to the longest one."""
    length = max(len(reply.tokens) for reply in replies) - 2
    width = embeddings.shape[1]
    inputs = np.zeros((len(replies), length, len(spread) * width), np.float32)
    embedded = np.zeros((len(replies), length, width), np.float32)
    wanted = np.full((len(replies), length), -1, np.int64)
    scale = np.repeat(spread, width)
    for place, reply in enumerate(replies):
        count = len(reply.tokens) - 2
        inputs[place, :count] = reply.inputs[:count] / scale
        embedded[place, :count] = embeddings[reply.tokens[1:-1]]
        wanted[place, :count] = numbers[reply.tokens[2:]]
        wanted[place, : max(reply.first - 2, 0)] = -1
    return Batch(inputs, embedded, wanted)


def _for_file(weights: Weights, spread: Array) -> Weights:
    """Weights that take inputs of layers as they are."""
    width = len(weights["output_norm"])
    return weights | {"fc": weights["fc"] / np.repeat(spread, width)}


class Adam:
    """Adam (Kingma and Ba 2015, arXiv 1412.6980) on weights in place, with a cosine to 0."""

    def __init__(self, weights: Weights, steps: int) -> None:
        self._weights = weights
        self._steps = steps
        self._done = 0
        self._means = {name: np.zeros_like(values) for name, values in weights.items()}
        self._squares = {name: np.zeros_like(values) for name, values in weights.items()}

    def step(self, gradients: Weights) -> None:
        """Take one step; gradients that are too long together are shortened."""
        length = float(np.sqrt(sum(float((one * one).sum()) for one in gradients.values())))
        shortened = np.float32(min(1.0, _CLIP / max(length, 1e-12)))
        done = self._done + 1
        rate = _RATE * min(done / _WARM_UP, 0.5 + 0.5 * np.cos(np.pi * self._done / self._steps))
        root = np.sqrt(1.0 - _SECOND**done)
        for name, values in gradients.items():
            mean, square = self._means[name], self._squares[name]
            gradient = values * shortened
            mean += (1.0 - _FIRST) * (gradient - mean)
            square += (1.0 - _SECOND) * (gradient * gradient - square)
            change = mean / (np.sqrt(square) / root + 1e-8)
            self._weights[name] -= np.float32(rate / (1.0 - _FIRST**done)) * change
        self._done = done
