"""How long a pass takes with weights on disk or GPUs, and what memory is then worth most for."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial

from app.loading.placement import MemoryPlan
from backends.base import OutOfMemoryError
from backends.streaming.weight_plan import LockPlan, WeightLayout, lock_plan


@dataclass(frozen=True, slots=True)
class ReadRates:
    """Bytes per second that a pass reads: from the disk of the model's file, and from memory."""

    disk: float
    memory: float

    def seconds(self, streamed: int, token_bytes: int, n_tokens: int = 1) -> float:
        """Seconds of a pass that reads so many bytes from disk.

        token_bytes: all bytes that one token reads, wherever they lie. max(streamed / disk,
        token_bytes / memory) + (n_tokens - 1) * token_bytes / memory: the disk reads ahead while
        weights are computed, and the slower of the two decides. A further token takes at most as
        long as reading its weights from memory once more; an upper bound, as tokens share what is
        read. On two busy cores a token took about twice as long (docs/start/larger-than-memory.md).
        """
        whole = token_bytes / self.memory
        return max(streamed / self.disk, whole) + (n_tokens - 1) * whole


def pass_seconds(
    layout: WeightLayout, budget: int, rates: ReadRates
) -> Callable[[int, int], float]:
    """Seconds of a pass, by the bytes of the budget that a drafter takes and the pass's tokens.

    budget: bytes of memory for held weights and a drafter together. Of a mixture of experts, a pass
    reads from disk those that its tokens choose.
    """
    token_bytes = layout.read_bytes()

    @cache
    def beside(drafter_bytes: int) -> LockPlan:
        return lock_plan(layout, budget - drafter_bytes)

    def seconds(drafter_bytes: int, n_tokens: int) -> float:
        streamed = beside(drafter_bytes).read_bytes(n_tokens)
        return rates.seconds(streamed, token_bytes, n_tokens)

    return seconds


def streamed_bytes(planned: MemoryPlan) -> int:
    """Bytes that a pass over one token of a split model reads from disk."""
    assert planned.split is not None
    if planned.lock_bytes is None:
        return 0
    return lock_plan(planned.split.beside, planned.lock_bytes).read_bytes()


@dataclass(frozen=True, slots=True)
class SplitRates:
    """Bytes per second that a pass reads: those of the processor's part, and of GPUs' memory."""

    beside: ReadRates
    gpu: float

    def seconds(self, on_gpu: int, streamed: int, beside: int, n_tokens: int = 1) -> float:
        """Seconds of a pass: GPUs and processor compute one after the other, so their times add up.

        Bytes that a token reads: on GPUs, from disk, and of the processor's part in all. An upper
        bound, as tokens share what is read.
        """
        return self.beside.seconds(streamed, beside, n_tokens) + n_tokens * on_gpu / self.gpu


def split_seconds(
    planned: Callable[[int], MemoryPlan], rates: SplitRates
) -> Callable[[int, int], float]:
    """Seconds of a pass, by the bytes of GPUs that a drafter takes and the pass's tokens.

    planned: the plan by these bytes; where it raises OutOfMemoryError, a pass takes forever.
    """

    @cache
    def by_tokens(drafter_bytes: int) -> Callable[[int], float]:
        with suppress(OutOfMemoryError):
            chosen = planned(drafter_bytes)
            assert chosen.split is not None
            on_gpu, beside = chosen.split.read, chosen.split.beside.read_bytes()
            return partial(rates.seconds, on_gpu, streamed_bytes(chosen), beside)
        return lambda _: math.inf  # what it displaces on GPUs fits nowhere else

    return lambda drafter_bytes, n_tokens: by_tokens(drafter_bytes)(n_tokens)


@dataclass(frozen=True, slots=True)
class Contender:
    """A drafter that could be held in memory.

    draw_seconds: for one drafted token. acceptance: share of its tokens that are accepted;
    is_measured: with this very model, else it is a prior.
    """

    name: str
    memory_bytes: int
    draw_seconds: float
    acceptance: float
    is_measured: bool = True


@dataclass(frozen=True, slots=True)
class Split:
    """The best use of memory. drafter: None if weights alone are held; rate: tokens per second."""

    drafter: Contender | None
    rate: float
