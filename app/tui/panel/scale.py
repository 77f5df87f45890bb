"""The scale of the graph: from 0, with plain speed where a row of cells ends."""

import math
from dataclasses import dataclass
from typing import Self

from app.tui.live import Second

_LEAST = 1.5
"""Top of the scale over plain speed; doubled until the fastest second fits."""

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Scale:
    """Tokens a second at the top of the graph, and those of plain decoding if known."""

    top: float
    plain: float | None = None

    @classmethod
    def of(cls, minute: tuple[Second, ...], plain: float | None) -> Self:
        """The scale that holds every second; rates that are no finite number do not count."""
        peak = max((finite(second.rate) for second in minute), default=0.0)
        if plain is None or finite(plain) <= 0.0:
            return cls(_round_up(peak))
        top = _LEAST * plain
        while top < peak:
            top *= 2.0
        return cls(top, plain)

    def is_gain(self, rate: float, top: float) -> bool:
        """Whether a row of cells that ends at top shows what drafting adds to a rate."""
        if self.plain is None:
            return False
        return finite(rate) > self.plain and top > self.plain * (1.0 + _ROUNDING)


def finite(rate: float) -> float:
    """A rate, 0 if it is negative or no finite number."""
    return rate if math.isfinite(rate) and rate > 0.0 else 0.0


def _round_up(peak: float) -> float:
    """The next of 1, 2 and 5 times a power of ten; 1 for 0."""
    if peak <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(peak))
    return next(power * step for step in (1.0, 2.0, 5.0, 10.0) if power * step >= peak)
