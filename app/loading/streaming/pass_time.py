"""How long a pass takes while a part of the weights is read from disk."""

from collections.abc import Callable
from dataclasses import dataclass

from backends.streaming.lock_plan import LockPlan, lock_plan
from backends.streaming.weight_layout import WeightLayout


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
    token_bytes = layout.bytes_per_token

    def seconds(drafter_bytes: int, n_tokens: int) -> float:
        if drafter_bytes not in plans:
            plans[drafter_bytes] = lock_plan(layout, budget - drafter_bytes)
        return rates.seconds(plans[drafter_bytes].read_bytes(n_tokens), token_bytes, n_tokens)

    return seconds
