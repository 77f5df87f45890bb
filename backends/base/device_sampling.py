"""Contract of sampling on the device, without copying logits to the host."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Listener = Callable[["NDArray[np.int64]"], None]
"""Called after a pass with the likeliest token after each of its tokens, shape (tokens,)."""


@dataclass(frozen=True, slots=True)
class Warping:
    """Parameters that warp a distribution: top-k, top-p, min-p, and temperature last.

    temperature 0 keeps only the most likely token; top_k 0 means every token.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float


class DeviceRow(Protocol):
    """A q_draft that stays on the device until it is verified there."""

    def probabilities(self) -> "NDArray[np.float64]":
        """Copy of the probabilities on the host, shape (n_vocab,), adding up to 1."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens drawn in sequence, each with its probability and its q_draft."""

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    rows: tuple[DeviceRow, ...]


class DeviceSampling(Protocol):
    """Draws and verifies tokens of one context on its device.

    uniforms: numbers in (0, 1], float64. Both methods raise ModelError if the engine failed (the
    context is then as forward leaves it) or gave no finite scores.
    """

    def draft(
        self,
        tokens: Sequence[int],
        warping: Warping,
        uniforms: "NDArray[np.float64]",
        n_vocab: int,
    ) -> Drawn:
        """Append tokens, draw one token for each uniform, and append all drawn but the last.

        Only the first n_vocab entries of a row are drawn from.
        """
        ...

    def verify(
        self,
        tokens: Sequence[int],
        drafted: Sequence[int],
        rows: Sequence[DeviceRow] | None,
        warping: Warping,
        uniforms: "NDArray[np.float64]",
        listener: Listener | None = None,
    ) -> tuple[int, int]:
        """Append tokens and drafted, and verify drafted; the model's distribution is preserved.

        rows: the q_draft of each drafted token, from a context of the same backend; None for a
        point mass on each. uniforms: one more than drafted. Returns the number of accepted tokens
        and the model's own token after them.

        A line with rows is verified as a block: it uses a uniform for each drafted token, in order,
        accepted or not, and the last for the token drawn. A point mass is accepted if the model
        draws its token: the uniforms up to the first mismatch are used.

        listener: called for the drafted tokens and the last one before them.
        """
        ...
