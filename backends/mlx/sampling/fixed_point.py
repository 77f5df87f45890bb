"""Fixed-point probabilities, for devices without float64.

Integer sums are exact in any order of summation. A *fraction* is a multiple of 2**-32 from 0 to 1:
a uniform number, or a chance it is compared with. A *probability* is a multiple of 2**-57, so that
those of a row add up to 2**57. All are int64.
"""

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

FRACTION_BITS = 32
PROBABILITY_BITS = 57
CERTAIN = 1 << FRACTION_BITS
"""The fraction 1."""

_POWERS = tuple(1 << bit for bit in range(62))


def fraction(uniforms: NDArray[np.float64]) -> mx.array:
    """Numbers in (0, 1] as fractions, rounded up so that none is 0."""
    return mx.array(np.ceil(uniforms * float(CERTAIN)).astype(np.int64))


def times(number: mx.array, part: mx.array) -> mx.array:
    """Product of a number from 0 to 2**58 and a fraction, rounded down by less than 2.

    The product needs 90 bits and is computed in two parts.
    """
    high, low = number >> 30, number & ((1 << 30) - 1)
    return ((high * part) >> 2) + ((low * part) >> 32)


def inverse(total: mx.array) -> tuple[mx.array, mx.array]:
    """2**(width - 1) / total as a fraction, with relative error 2**-30, and the width of total.

    total: from 1 to 2**58 - 1.
    """
    bits = width(total)
    return (1 << 62) // (total << (58 - bits) >> 27), bits


def ratio(numerator: mx.array, denominator: mx.array) -> tuple[mx.array, mx.array]:
    """Quotient of two numbers as factor * 2**-shift, with relative error 2**-28.

    Both are from 0 to 2**58; the ratio over 0 is 0. factor is below 2**31, and shift from 0 to 63:
    a ratio above 2**29 becomes 2**29 or more.
    """
    above, below = width(numerator), width(denominator)
    short = denominator << (61 - below) >> 30
    factor = (numerator << (61 - above)) // mx.maximum(short, 1)
    return mx.where(denominator > 0, factor, 0), mx.clip(30 + below - above, 0, 63)


def capped(part: mx.array, factor: mx.array, shift: mx.array) -> mx.array:
    """Fraction min(1, part * factor * 2**-shift), of a fraction and a ratio."""
    return mx.minimum((part * factor) >> shift, CERTAIN)


def width(numbers: mx.array) -> mx.array:
    """Bit lengths of numbers below 2**62, elementwise."""
    return (numbers[..., None] >= mx.array(_POWERS, dtype=mx.int64)).sum(-1).astype(mx.int64)
