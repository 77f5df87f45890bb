"""How the speed of a reply compares with plain decoding, as far as the measurement can tell."""

from dataclasses import dataclass
from enum import StrEnum

ENOUGH_TOKENS = 64
"""Shortest reply whose speed is worth comparing; shorter ones are too noisy."""


class Standing(StrEnum):
    """What can be said of a speed."""

    PLAIN = "plain"
    """Nothing was drafted."""
    SHORT = "short"
    """Too few tokens, or no plain rate yet."""
    EVEN = "even"
    """The error includes no difference."""
    FASTER = "faster"
    SLOWER = "slower"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A speedup and its error, twice the standard error; both None where nothing is compared."""

    standing: Standing
    speedup: float | None = None
    error: float | None = None

    @property
    def words(self) -> str:
        """The comparison for the screen; empty where nothing is compared."""
        if self.speedup is None or self.error is None:
            return ""
        if self.standing is Standing.EVEN:
            return f"even with plain ± {percent_up(self.error)} %"
        if self.standing is Standing.SLOWER:
            return (
                f"▲ {100 * (1 - self.speedup):.0f} % slower than plain ± {percent_up(self.error)} %"
            )
        digits = 1 if self.error >= 0.05 else 2
        return f"{self.speedup:.{digits}f}× plain ± {max(self.error, 10**-digits):.{digits}f}"


PLAIN = Comparison(Standing.PLAIN)


def compare(
    speedup: float | None, error: float | None, tokens: int, *, is_drafted: bool
) -> Comparison:
    """Compare a reply with plain decoding.

    speedup: its rate over the plain rate; error: twice the standard error of that ratio.
    """
    if not is_drafted:
        return PLAIN
    if speedup is None or error is None or tokens < ENOUGH_TOKENS:
        return Comparison(Standing.SHORT)
    if abs(speedup - 1.0) <= error:
        return Comparison(Standing.EVEN, speedup, error)
    standing = Standing.FASTER if speedup > 1.0 else Standing.SLOWER
    return Comparison(standing, speedup, error)


def percent_up(share: float) -> int:
    """A share in whole per cent, at least 1."""
    return max(1, round(100 * share))
