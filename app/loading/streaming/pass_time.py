"""How long a pass takes while a part of the weights is read from disk."""

from collections.abc import Callable
from dataclasses import dataclass

from backends.streaming.lock_plan import lock_plan
from backends.streaming.weight_layout import WeightLayout


@dataclass(frozen=True, slots=True)
class ReadRates:
    """Bytes per second that a pass reads: from the disk of the model's file, and from memory."""

    disk: float
    memory: float

    def seconds(self, streamed: int, held: int, n_tokens: int = 1) -> float:
        """Seconds of a pass that reads so many bytes from disk, and so many held in memory.

        streamed / disk + n_tokens * (streamed + held) / memory: pages are computed as they come
        from the disk, and computing a token takes at most as long as reading all weights from
        memory. For one token that is an estimate; for more it is an upper bound, as they share what
        is read.
        """
        return streamed / self.disk + n_tokens * (streamed + held) / self.memory


def pass_seconds(
    layout: WeightLayout, budget: int, rates: ReadRates
) -> Callable[[int, int], float]:
    """Seconds of a pass, by the bytes of the budget that a drafter takes and the pass's tokens.

    budget: bytes of memory for held weights and a drafter together.
    """
    read: dict[int, int] = {}

    def seconds(drafter_bytes: int, n_tokens: int) -> float:
        if drafter_bytes not in read:
            planned = lock_plan(layout, budget - drafter_bytes)
            read[drafter_bytes] = planned.read_bytes_per_token
        streamed = read[drafter_bytes]
        return rates.seconds(streamed, layout.bytes_per_token - streamed, n_tokens)

    return seconds
