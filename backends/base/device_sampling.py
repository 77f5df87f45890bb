"""The contract of sampling where the logits are: on the device, without bringing them over."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Listener = Callable[[NDArray[np.int64]], None]
"""Told after a pass the likeliest token after each of its tokens, shape (tokens,)."""


@dataclass(frozen=True, slots=True)
class Warping:
    """What shapes a distribution, whatever the text: top-k, top-p, min-p, temperature last.

    temperature 0 leaves the most likely token alone; top_k 0 means every token.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float


class DeviceRow(Protocol):
    """A q_draft that stays on the device until it is judged there."""

    def probabilities(self) -> NDArray[np.float64]:
        """Brought over: the probability of each token, shape (n_vocab,), adding up to 1."""
        ...


@dataclass(frozen=True, slots=True)
class Drawn:
    """Tokens drawn one after another, each with its probability and the q_draft it came from."""

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    rows: tuple[DeviceRow, ...]


class DeviceSampling(Protocol):
    """Draws and judges tokens of one context on its device.

    uniforms: numbers in (0, 1], float64. Both raise ModelError where the engine failed (the
    context is then as forward leaves it) or gave no finite scores.
    """

    def draft(
        self,
        tokens: Sequence[int],
        warping: Warping,
        uniforms: NDArray[np.float64],
        n_vocab: int,
    ) -> Drawn:
        """Append tokens, then draw one token for each uniform, and append all drawn but the last.

        Only the first n_vocab entries of a row are drawn from.
        """
        ...

    def verify(
        self,
        tokens: Sequence[int],
        drafted: Sequence[int],
        rows: Sequence[DeviceRow] | None,
        warping: Warping,
        uniforms: NDArray[np.float64],
        listener: Listener | None = None,
    ) -> tuple[int, int]:
        """Append tokens and drafted, and judge drafted so that the model's distribution is kept.

        rows: the q_draft of each drafted token, from a context of the same backend; None for a
        point mass on each. uniforms: one more than drafted. Returns how many tokens stand and the
        model's own token after them.

        A line with rows is judged as a whole (block verification): it uses a uniform for each
        drafted token, in order, whether it stands or not, and the last for the token drawn. Point
        masses stand while the model draws them: used are the uniforms up to the first it does not.

        listener: told of the drafted tokens and of the last before them.
        """
        ...
