"""Measures what passes of a target and of its drafter take when both run at once."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median

from backends.base import Context
from decoding.overlap.thread_split import ThreadSplit
from decoding.overlap.worker import Worker

_ROUNDS, _FEWEST_ROUNDS = 7, 3
"""Most and fewest rounds that are measured. A guess; not measured."""

_SLOW_SECONDS = 0.5
"""Seconds of the target's pass from which one round suffices, so that it takes no minutes; noise
is small beside such passes. A guess; not measured."""

_SECONDS = 1.0
"""Time after which no further round begins, but for the fewest."""

_MOST_PASSES = 4096
"""Passes of the drafter during one of the target: a bound, so that they end whatever happens."""


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Factors by which passes take longer than alone, of the target and of the drafter."""

    target: float
    drafter: float


@dataclass(slots=True)
class _Timings:
    alone: list[float] = field(default_factory=list[float])
    at_once: list[float] = field(default_factory=list[float])

    @property
    def factor(self) -> float:
        """Median against median: unlike other programs, the other engine is there all the time.

        Not below 1: nobody is faster for the company.
        """
        return max(median(self.at_once) / median(self.alone), 1.0)


def measure_at_once(
    target: Context,
    drafter: Context,
    worker: Worker,
    tokens: Sequence[int],
    length: int,
    split: ThreadSplit | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> AtOnce:
    """What both take at once: the target over length tokens, the drafter over one after another.

    Alone, each has all threads; at once, those that split gives them. Rounds of both take turns, so
    that other load slows them alike. tokens: text, more than length. Both contexts are left empty.

    Raises:
        ModelError: an engine failed.
    """
    targets, drafters = _Timings(), _Timings()

    def verify(timings: list[float]) -> None:
        target.truncate(1)
        started = clock()
        target.forward(tokens[1 : 1 + length], length)
        timings.append(clock() - started)

    def both(verifying: list[float], drafting: list[float]) -> None:
        if split is not None:
            split.begin()
        try:
            worker.start(_drafting(drafter, tokens, drafting, clock))
            verify(verifying)
        finally:
            worker.stop()
            if split is not None:
                split.end()

    for context in (target, drafter):
        context.truncate(0)
        context.forward(tokens[:1], 1)
        context.checkpoint()  # a running state goes back to it, however far
    first: list[float] = []
    verify(first)
    is_slow = first[0] > _SLOW_SECONDS
    if not is_slow:
        both([], [])  # threads are started, and weights brought into memory
    started = clock()
    for count in range(_ROUNDS):
        if count >= (1 if is_slow else _FEWEST_ROUNDS) and clock() - started > _SECONDS:
            break
        verify(targets.alone)
        for _ in islice(_drafting(drafter, tokens, drafters.alone, clock), 2):
            pass
        both(targets.at_once, drafters.at_once)
    target.truncate(0)
    drafter.truncate(0)
    return AtOnce(targets.factor, drafters.factor)


def _drafting(
    drafter: Context, tokens: Sequence[int], timings: list[float], clock: Callable[[], float]
) -> Iterator[None]:
    """Passes over one token; timings gets the seconds of each."""
    for count in range(_MOST_PASSES):
        if drafter.length == drafter.n_ctx:
            drafter.truncate(1)
        started = clock()
        drafter.forward([tokens[count % len(tokens)]], 1)
        timings.append(clock() - started)
        yield
