"""Recipe of a self-drafter: fewer bits, layers or active experts than its target."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from backends.base import UsageError

FILE_BITS = {
    "q2_k": 3.2, "q3_k_s": 3.7, "q3_k_m": 4.0, "q4_0": 4.5, "q4_1": 5.0, "q4_k_s": 4.6,
    "q4_k_m": 4.9, "q5_0": 5.5, "q5_1": 6.0, "q5_k_m": 5.7, "q6_k": 6.6, "q8_0": 8.5,
}  # fmt: skip
"""Bits per weight with scales, by quantization: Llama 3 8B, from llama.cpp's list."""

Skipped = tuple[int, ...]
"""Layers to skip, counted from 0, ascending."""

QUANTIZATIONS = tuple(FILE_BITS)

_LONGEST = 100
"""Most characters for layers in a file name."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Changes to a target. quantization: None for the target's; skipped layers count from 0.

    experts: experts used per token, None for the target's number.
    """

    quantization: str | None = None
    skipped_layers: tuple[int, ...] = ()
    experts: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse parts joined by '+', such as q4_0, skip=12-17, q4_0+skip=3 or experts=1.

        Raises:
            UsageError: a part is no known quantization, range of layers or number of experts.
        """
        quantization: str | None = None
        experts: int | None = None
        skipped: set[int] = set()
        for part in text.lower().split("+"):
            layers = re.fullmatch(r"skip=(\d{1,4})(?:-(\d{1,4}))?", part)
            if layers:
                skipped.update(_range(text, int(layers[1]), int(layers[2] or layers[1])))
            elif part in QUANTIZATIONS and quantization is None:
                quantization = part
            elif (fewer := re.fullmatch(r"experts=(\d{1,4})", part)) and experts is None:
                experts = int(fewer[1])
            elif part in QUANTIZATIONS or fewer:
                twice = "quantizations" if part in QUANTIZATIONS else "numbers of experts"
                raise UsageError(f"self:{text} contradicts itself", f"it has two {twice}")
            else:
                raise UsageError(
                    f"self:{text} names no way to make a drafter",
                    f"{part!r} is none of skip=FIRST-LAST, experts=N, {', '.join(QUANTIZATIONS)}",
                    "Example: self:q4_0+skip=12-17",
                )
        return cls(quantization, tuple(sorted(skipped)), experts)

    @property
    def body(self) -> Self:
        """Recipe with every layer."""
        return replace(self, skipped_layers=())

    @property
    def of_weights(self) -> Self:
        """Part of the recipe that changes weights: all but experts, which are set on loading."""
        return replace(self, experts=None)

    @property
    def variant(self) -> str:
        """Part of the recipe outside the weights, "" if there is none."""
        return f"experts{self.experts}" if self.experts else ""

    @property
    def bits(self) -> int | None:
        """Nominal bits per weight, None for the target's own."""
        return int(self.quantization[1]) if self.quantization else None

    @property
    def file_bits(self) -> float | None:
        """Approximate bits per weight in a file, scales included; None for the target's own."""
        return FILE_BITS[self.quantization] if self.quantization else None

    @property
    def text(self) -> str:
        """Canonical text, as parse reads it."""
        spans = [f"{first}-{last}" if first < last else f"{first}" for first, last in self._runs]
        experts = f"experts={self.experts}" if self.experts else None
        parts = [self.quantization, *(f"skip={span}" for span in spans), experts]
        return "+".join(filter(None, parts))

    @property
    def slug(self) -> str:
        """Unique name that fits in a file name."""
        layers = "".join(f"skip{first}to{last}" for first, last in self._runs)
        if len(layers) > _LONGEST:
            digest = hashlib.sha256(layers.encode()).hexdigest()[:16]
            layers = f"skip{len(self.skipped_layers)}layers{digest}"
        return "-".join(filter(None, [self.quantization, layers, self.variant]))

    @property
    def _runs(self) -> list[tuple[int, int]]:
        return runs(self.skipped_layers)

    def check(self, name: str, n_layers: int, active_experts: int | None = None) -> None:
        """Refuse layers and experts that a model does not have.

        active_experts: experts the model uses per token, None if not known yet.

        Raises:
            UsageError: a skipped layer is out of range, no layer would be left, or the number of
                experts is not below the model's.
        """
        if self.skipped_layers and self.skipped_layers[-1] >= n_layers:
            raise UsageError(
                f"layer {self.skipped_layers[-1]} cannot be skipped",
                f"{name} has layers 0 to {n_layers - 1}",
            )
        if len(self.skipped_layers) == n_layers:
            raise UsageError("every layer would be skipped", "", "Leave some to draft with.")
        if self.experts is None or active_experts is None:
            return
        if not 0 < self.experts < active_experts:
            has = f"it uses {active_experts} per token" if active_experts else "it has none"
            raise UsageError(f"{name} cannot use {self.experts} experts per token", has)


def _range(text: str, first: int, last: int) -> range:
    if last < first:
        raise UsageError(f"self:{text} skips no layer", f"{last} comes before {first}")
    return range(first, last + 1)


def runs(layers: Sequence[int]) -> list[tuple[int, int]]:
    """First and last layer of each run of consecutive layers."""
    firsts = [layer for layer in layers if layer - 1 not in layers]
    lasts = [layer for layer in layers if layer + 1 not in layers]
    return list(zip(firsts, lasts, strict=True))
