"""How far drafters would say what a model said: each is read over the same replies, and timed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from backends.base import Context
from decoding.estimation.trial import overlap, read
from decoding.events import Step
from decoding.generation import Limits, generate
from decoding.prefill import prefill, reuse
from decoding.sampling.distribution import Distribution, SamplingSettings, warp

_ROUNDS = 12
_LEAST_ROUNDS = 4
_SECONDS = 0.4
"""Spent on timing one drafter, where it is fast."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said after a prompt, in tokens."""

    prompt: tuple[int, ...]
    said: tuple[int, ...]


def spoken(
    context: Context, prompt: Sequence[int], settings: SamplingSettings, limits: Limits
) -> Reply:
    """A reply of the model of a context.

    Raises:
        ModelError: the engine failed.
    """
    events = generate(context, prompt, settings, limits)
    said = [token for event in events if isinstance(event, Step) for token in event.tokens]
    return Reply(tuple(prompt), tuple(said))


class Agreement:
    """The replies of a target with the distribution of each of their tokens.

    n_vocab: entries of a row past it are padding. The target's context is used for timing, and
    must hold any reply and a token more.

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
        self._p_target = [self._laws(target, reply) for reply in replies]

    def acceptance(self, drafter: Context) -> float:
        """Expected share of the drafter's tokens that are accepted: mean of sum min(p, q).

        Leviathan et al. 2023 (arXiv 2211.17192), corollary 3.6.

        Raises:
            ModelError: the engine failed.
        """
        shares: list[float] = []
        for reply, p_target in zip(self._replies, self._p_target, strict=True):
            q_draft = self._laws(drafter, reply)
            shares += map(overlap, p_target, q_draft)
        return float(np.mean(shares))

    def draw_cost(self, drafter: Context) -> float:
        """What a token of a drafter takes, in plain steps of the target: the quickest, in turns.

        Other work on the machine slows some passes, and the more it does, the more they differ.

        Raises:
            ModelError: an engine failed.
        """
        contexts = (self._target, drafter)
        text = [*self._replies[0].prompt, *self._replies[0].said]
        for context in contexts:
            reuse(context, text)
            for _ in prefill(context, text):
                pass
        started = self._clock()
        times: tuple[list[float], list[float]] = ([], [])
        while len(times[0]) < _LEAST_ROUNDS or (
            len(times[0]) < _ROUNDS and self._clock() - started < _SECONDS
        ):
            for context, found in zip(contexts, times, strict=True):
                found.append(self._seconds(context, text[-1]))
        plain, drawn = map(min, times)
        return drawn / plain

    def _seconds(self, context: Context, token: int) -> float:
        length = context.length
        started = self._clock()
        context.forward([token], 1)
        seconds = self._clock() - started
        context.truncate(length)
        return seconds

    def _laws(self, context: Context, reply: Reply) -> list[Distribution]:
        rows = read(context, reply.prompt, reply.said, self._n_vocab)
        return [warp(row, self._settings) for row in rows]
