"""How long a pass takes with weights on disk or GPUs, and what memory is then worth most for."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

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
    plans: dict[int, LockPlan] = {}
    token_bytes = layout.read_bytes()

    def seconds(drafter_bytes: int, n_tokens: int) -> float:
        if drafter_bytes not in plans:
            plans[drafter_bytes] = lock_plan(layout, budget - drafter_bytes)
        return rates.seconds(plans[drafter_bytes].read_bytes(n_tokens), token_bytes, n_tokens)

    return seconds


@dataclass(frozen=True, slots=True)
class SplitReads:
    """Bytes that a pass over one token reads: on GPUs, from disk and from the machine's memory."""

    on_gpu: int
    streamed: int
    held: int

    @classmethod
    def of(cls, planned: MemoryPlan) -> Self:
        split, streamed = planned.split, 0
        assert split is not None
        if planned.lock_bytes is not None:
            streamed = lock_plan(split.beside, planned.lock_bytes).read_bytes()
        return cls(split.read, streamed, split.beside.read_bytes() - streamed)


@dataclass(frozen=True, slots=True)
class SplitRates:
    """Bytes per second that a pass reads: those of the processor's part, and of GPUs' memory."""

    beside: ReadRates
    gpu: float

    def seconds(self, reads: SplitReads, n_tokens: int = 1) -> float:
        """Seconds of a pass: GPUs and processor compute one after the other, so their times add up.

        ReadRates.seconds(streamed, streamed + held, n_tokens) + n_tokens * on_gpu / gpu. An upper
        bound, as tokens share what is read.
        """
        of_processor = self.beside.seconds(reads.streamed, reads.streamed + reads.held, n_tokens)
        return of_processor + n_tokens * reads.on_gpu / self.gpu


def split_seconds(
    planned: Callable[[int], MemoryPlan], rates: SplitRates
) -> Callable[[int, int], float]:
    """Seconds of a pass, by the bytes of GPUs that a drafter takes and the pass's tokens.

    planned: the plan by these bytes; where it raises OutOfMemoryError, a pass takes forever.
    """
    known: dict[int, SplitReads | None] = {}

    def seconds(drafter_bytes: int, n_tokens: int) -> float:
        if drafter_bytes not in known:
            known[drafter_bytes] = None  # where what it displaces on GPUs fits nowhere else
            with suppress(OutOfMemoryError):
                known[drafter_bytes] = SplitReads.of(planned(drafter_bytes))
        reads = known[drafter_bytes]
        return math.inf if reads is None else rates.seconds(reads, n_tokens)

    return seconds


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
