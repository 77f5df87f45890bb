"""Agreement of drafters with a target's replies, and their cost, without running the loop."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from backends.base import Context, Logits
from decoding.estimation.trial import overlap
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.prefill import prefill, reuse
from decoding.sampling.distribution import Distribution, warp
from decoding.sampling.settings import SamplingSettings

_ROUNDS = 12
"""Most rounds of timing; the quickest counts. A guess; not measured."""

_LEAST_ROUNDS = 4
"""Least rounds of timing, on a slow drafter. A guess; not measured."""

_SECONDS = 0.4
"""Time spent on timing one drafter beyond the least rounds, so that tuning can try dozens. Not
measured."""


@dataclass(frozen=True, slots=True)
class Reply:
    prompt: tuple[int, ...]
    said: tuple[int, ...]


def spoken(
    context: Context, prompt: Sequence[int], settings: SamplingSettings, limits: Limits
) -> Reply:
    """The reply of a context's model to a prompt.

    Raises:
        ModelError: the engine failed.
    """
    events = generate(context, prompt, settings, limits)
    tokens = [token for event in events if isinstance(event, Step) for token in event.tokens]
    return Reply(tuple(prompt), tuple(tokens))


class Agreement:
    """Replies of a target, with its distribution at each of their tokens.

    n_vocab: entries of a row past it are padding. The target's context is used for timing too, and
    must have room for any reply and one more token.

    Raises:
        ModelError: the engine failed.
    """

    def __init__(
        self,
        target: Context,
        replies: Sequence[Reply],
        n_vocab: int,
        settings: SamplingSettings,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._target = target
        self._replies = replies
        self._n_vocab = n_vocab
        self._settings = settings
        self._clock = clock
        self._p_target = [self._distributions(target, reply) for reply in replies]

    def acceptance(self, drafter: Context) -> float:
        """Expected share of the drafter's tokens that are accepted: mean of sum min(p, q).

        Leviathan et al. 2023 (arXiv 2211.17192), corollary 3.6.

        Raises:
            ModelError: the engine failed.
        """
        shares: list[float] = []
        for reply, p_target in zip(self._replies, self._p_target, strict=True):
            q_draft = self._distributions(drafter, reply)
            shares += map(overlap, p_target, q_draft)
        return float(np.mean(shares))

    def draw_cost(self, drafter: Context) -> float:
        """Cost of drafting a token, in plain steps of the target; both are timed in turns.

        The quickest pass of each counts, as other programs only ever add time.

        Raises:
            ModelError: an engine failed.
        """
        contexts = (self._target, drafter)
        text = [*self._replies[0].prompt, *self._replies[0].said]
        for context in contexts:
            reuse(context, text)
            for _ in prefill(context, text):
                pass
            context.checkpoint()
        started = self._clock()
        times: tuple[list[float], list[float]] = ([], [])
        while len(times[0]) < _LEAST_ROUNDS or (
            len(times[0]) < _ROUNDS and self._clock() - started < _SECONDS
        ):
            for context, timed in zip(contexts, times, strict=True):
                timed.append(self._seconds(context, text[-1]))
        plain, drafted = map(min, times)
        return drafted / plain

    def _seconds(self, context: Context, token: int) -> float:
        length = context.length
        started = self._clock()
        context.forward([token], 1)
        seconds = self._clock() - started
        context.truncate(length)
        return seconds

    def _distributions(self, context: Context, reply: Reply) -> list[Distribution]:
        rows = _read(context, reply.prompt, reply.said, self._n_vocab)
        return [warp(row, self._settings) for row in rows]


def _read(
    context: Context, text: Sequence[int], reply: Sequence[int], n_vocab: int
) -> list[Logits]:
    """Logits at each token of a reply to text, shape (n_vocab,), given the text before it.

    The part of the text that the context holds already is not read again.

    Raises:
        ModelError: the engine failed.
    """
    reuse(context, text)
    *_, (_, view) = prefill(context, text)
    rows = [view[0, :n_vocab].copy()]
    most = min(context.n_chunk, context.max_logits)
    for start in range(0, len(reply) - 1, most):
        chunk = reply[start : min(start + most, len(reply) - 1)]
        rows += [row.copy() for row in context.forward(chunk, len(chunk))[:, :n_vocab]]
    return rows
