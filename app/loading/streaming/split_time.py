"""How long a pass takes while a part of the layers is on GPUs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from app.loading.memory_plan import MemoryPlan
from app.loading.streaming.pass_time import ReadRates
from backends.base import OutOfMemoryError
from backends.streaming.lock_plan import lock_plan


@dataclass(frozen=True, slots=True)
class SplitReads:
    """Bytes that a pass over one token reads: on GPUs, from disk and from the machine's memory."""

    on_gpu: int
    streamed: int
    held: int

    @classmethod
    def of(cls, planned: MemoryPlan) -> Self:
        """Those of a plan with a split."""
        split, streamed = planned.split, 0
        assert split is not None
        if planned.lock_bytes is not None:
            streamed = lock_plan(split.beside, planned.lock_bytes).read_bytes_per_token
        return cls(split.read, streamed, split.beside.bytes_per_token - streamed)


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
            known[drafter_bytes] = _reads(planned, drafter_bytes)
        reads = known[drafter_bytes]
        return math.inf if reads is None else rates.seconds(reads, n_tokens)

    return seconds


def _reads(planned: Callable[[int], MemoryPlan], drafter_bytes: int) -> SplitReads | None:
    """Reads beside a drafter; None if what it displaces on GPUs fits nowhere else."""
    try:
        return SplitReads.of(planned(drafter_bytes))
    except OutOfMemoryError:
        return None
