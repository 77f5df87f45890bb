"""How a self-drafter is made from its target: fewer bits, fewer layers, or both."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from backends.base import ModelInfo, UsageError
from backends.choice import MLX

QUANTIZATIONS = (
    "q2_k", "q3_k_s", "q3_k_m", "q4_0", "q4_1", "q4_k_s", "q4_k_m",
    "q5_0", "q5_1", "q5_k_m", "q6_k", "q8_0",
)  # fmt: skip

_FEW_BITS_OF_MLX = ("2-bit", "3-bit", "4-bit")
"""Below four bits MLX's grid is too coarse: of the bundled model's likeliest tokens a copy in four
kept 0.72, one in three 0.39, and a view without three of its thirty layers 0.67."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """quantization None keeps the target's; skipped layers count from 0."""

    quantization: str | None = None
    skipped_layers: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read parts joined by '+', such as q4_0, skip=12-17 or q4_0+skip=3.

        Raises:
            UsageError: a part that is neither a known quantization nor layers to skip.
        """
        quantization: str | None = None
        skipped: set[int] = set()
        for part in text.lower().split("+"):
            layers = re.fullmatch(r"skip=(\d{1,4})(?:-(\d{1,4}))?", part)
            if layers:
                skipped.update(_range(text, int(layers[1]), int(layers[2] or layers[1])))
            elif part in QUANTIZATIONS and quantization is None:
                quantization = part
            elif part in QUANTIZATIONS:
                raise UsageError(f"self:{text} contradicts itself", "it has two quantizations")
            else:
                raise UsageError(
                    f"self:{text} names no way to make a drafter",
                    f"{part!r} is neither skip=FIRST-LAST nor one of {', '.join(QUANTIZATIONS)}",
                    "Example: self:q4_0+skip=12-17",
                )
        return cls(quantization, tuple(sorted(skipped)))

    @classmethod
    def default(cls, info: ModelInfo) -> Self:
        """Four bits in the layout CPUs are fastest with; fewer where the target has that."""
        if info.backend == MLX and info.quantization in _FEW_BITS_OF_MLX and info.n_layers > 1:
            return cls(None, _middle(info.n_layers))
        if info.backend == MLX:
            return cls("q4_0")
        return cls("q2_k" if info.quantization.upper() == "Q4_0" else "q4_0")

    @property
    def bits(self) -> int | None:
        """Of a weight, as far as the quantization's name tells; None for the target's own."""
        return int(self.quantization[1]) if self.quantization else None

    @property
    def slug(self) -> str:
        """A name that differs for every recipe and fits in a file name."""
        layers = "".join(f"skip{first}to{last}" for first, last in _runs(self.skipped_layers))
        return "-".join(filter(None, [self.quantization, layers]))

    def check(self, name: str, n_layers: int) -> None:
        """Refuse layers that a model of so many does not have.

        Raises:
            UsageError: a skipped layer is out of range, or too few would be left.
        """
        if self.skipped_layers and self.skipped_layers[-1] >= n_layers:
            raise UsageError(
                f"layer {self.skipped_layers[-1]} cannot be skipped",
                f"{name} has layers 0 to {n_layers - 1}",
            )
        if len(self.skipped_layers) == n_layers:
            raise UsageError("every layer would be skipped", "", "Leave some to draft with.")


def _middle(n_layers: int) -> tuple[int, ...]:
    """An eighth of the layers: the first and the last matter most."""
    count = max(n_layers // 8, 1)
    first = (n_layers - count) // 2
    return tuple(range(first, first + count))


def _range(text: str, first: int, last: int) -> range:
    if last < first:
        raise UsageError(f"self:{text} skips no layer", f"{last} comes before {first}")
    return range(first, last + 1)


def _runs(layers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each run of consecutive layers."""
    firsts = [layer for layer in layers if layer - 1 not in layers]
    lasts = [layer for layer in layers if layer + 1 not in layers]
    return list(zip(firsts, lasts, strict=True))
