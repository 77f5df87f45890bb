"""How the speed of a reply compares with plain decoding, as far as the measurement can tell."""

import math
from dataclasses import dataclass
from enum import StrEnum

ENOUGH_TOKENS = 64
"""Shortest reply whose speed is worth comparing; shorter ones are too noisy."""

_LARGEST_ERROR = 0.25
"""With a larger error, "even" would promise more than was measured."""

_LEAST_ERROR = 0.01
"""A smaller difference is called even however sure it is."""


class Standing(StrEnum):
    """What can be said of a speed."""

    PLAIN = "plain"
    """Nothing was drafted."""
    SHORT = "short"
    """Too few tokens, or no plain rate yet."""
    NOISY = "noisy"
    """The error is so large that neither a gain nor its absence is shown."""
    EVEN = "even"
    """The error includes no difference."""
    FASTER = "faster"
    SLOWER = "slower"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A speedup and its error, twice the standard error; both None where nothing is compared.

    is_paused: whether drafting is paused, which the words for a slower speed add.
    """

    standing: Standing
    speedup: float | None = None
    error: float | None = None
    is_paused: bool = False

    @property
    def words(self) -> str:
        """The comparison for the screen; empty where nothing is compared."""
        if self.speedup is None or self.error is None or self.standing is Standing.NOISY:
            return ""
        if self.standing is Standing.EVEN:
            return f"even with plain ± {_percent(self.error)} %"
        if self.standing is Standing.SLOWER:
            slower = (
                f"▲ {_percent(1 - self.speedup)} % slower than plain ± {_percent(self.error)} %"
            )
            return f"{slower} · drafting paused" if self.is_paused else slower
        digits = 1 if self.error >= 0.05 else 2
        return f"{self.speedup:.{digits}f}× plain ± {max(self.error, 10**-digits):.{digits}f}"

    @property
    def panel_words(self) -> str:
        """The words, and why there are none for a short reply or on a busy machine."""
        why = {Standing.SHORT: "too short to compare", Standing.NOISY: "too noisy to compare"}
        return why.get(self.standing) or self.words


PLAIN = Comparison(Standing.PLAIN)


def compare(
    speedup: float | None,
    error: float | None,
    tokens: int,
    *,
    is_drafted: bool,
    is_paused: bool = False,
) -> Comparison:
    """Compare a reply with plain decoding.

    speedup: its rate over the plain rate; error: twice the standard error of that ratio.
    """
    if not is_drafted:
        return PLAIN
    if speedup is None or error is None or tokens < ENOUGH_TOKENS:
        return Comparison(Standing.SHORT)
    if abs(speedup - 1.0) <= max(error, _LEAST_ERROR):
        standing = Standing.NOISY if error > _LARGEST_ERROR else Standing.EVEN
        return Comparison(standing, speedup, error)
    standing = Standing.FASTER if speedup > 1.0 else Standing.SLOWER
    return Comparison(standing, speedup, error, is_paused)


def compare_replies(drafted: float, plain: float, tokens: int, spread: float) -> Comparison:
    """Compare the rates of two replies that were generated one after the other.

    tokens: of the shorter one. spread: relative standard deviation between such replies.
    """
    speedup = drafted / plain
    return compare(speedup, 2.0 * math.sqrt(2.0) * speedup * spread, tokens, is_drafted=True)


def _percent(share: float) -> int:
    """A share in whole per cent, at least 1."""
    return max(1, round(100 * share))
