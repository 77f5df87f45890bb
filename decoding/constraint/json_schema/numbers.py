"""The JSON texts of the numbers between two bounds, exactly."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, gcd, lcm

INTEGER = "-?(0|[1-9][0-9]*)"
NUMBER = rf"{INTEGER}(\.[0-9]+)?([eE][+-]?[0-9]+)?"

_FRACTION = r"(\.[0-9]+)?"
SAFE_DIGITS = 15
"""Digits of a fraction: a double of one with more may be on the other side of a bound."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The end of an interval, which it contains unless it is open."""

    value: Fraction
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers between bounds, None where there is none; all multiples of step, if there is one."""

    low: Bound | None = None
    high: Bound | None = None
    is_integer: bool = False
    step: Fraction | None = None

    def has(self, value: Fraction) -> bool:
        """Whether a number is one of them."""
        low, high, step = self.low, self.high, self.whole_step
        return (
            (low is None or value > low.value or (value == low.value and not low.is_open))
            and (high is None or value < high.value or (value == high.value and not high.is_open))
            and (step is None or (value / step).denominator == 1)
        )

    @property
    def whole_step(self) -> Fraction | None:
        """What all of them are multiples of; an integer that is a multiple of p/q is one of p."""
        if not self.is_integer:
            return self.step
        return Fraction(1) if self.step is None else Fraction(self.step.numerator)

    def closed(self) -> "Numbers":
        """The same numbers with bounds among them, if they are multiples."""
        if (step := self.whole_step) is None:
            return self
        low, high = self.low, self.high
        if low is not None:
            count = low.value / step
            low = Bound(step * (floor(count) + 1 if low.is_open else ceil(count)))
        if high is not None:
            count = high.value / step
            high = Bound(step * (ceil(count) - 1 if high.is_open else floor(count)))
        return Numbers(low, high, self.is_integer, self.step)

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        low, high = (closed := self.closed()).low, closed.high
        if low is None or high is None or low.value < high.value:
            return False
        return low.value > high.value or low.is_open or high.is_open

    @property
    def expressions(self) -> Sequence[str]:
        """Regular expressions all of which the text of a number matches; step is not looked at."""
        low, high = self.low, self.high
        found = [_at_least(low)] if low is not None else []
        found += [_at_most(high)] if high is not None else []
        if self.is_integer:
            return [INTEGER, *found]
        if not found:
            return [NUMBER]
        sizes = (len(text(abs(bound.value))) for bound in (low, high) if bound is not None)
        most = max(SAFE_DIGITS + 1, *sizes)
        return [f"{INTEGER}{_FRACTION}", f"-?([0-9]+|[0-9.]{{1,{most}}})", *found]


def both(left: Fraction | None, right: Fraction | None) -> Fraction | None:
    """What a multiple of both is a multiple of."""
    if left is None or right is None:
        return left if right is None else right
    return Fraction(lcm(left.numerator, right.numerator), gcd(left.denominator, right.denominator))


def text(value: Fraction) -> str:
    """The usual text of a number; it has finitely many decimal places."""
    whole, places = _parts(value)
    return f"{'-' if value < 0 else ''}{whole}{'.' if places else ''}{places}"


def _parts(value: Fraction) -> tuple[str, str]:
    """Digits of an absolute value before and after the point, no zeros last."""
    value, count = abs(value), 0
    while (value * 10**count).denominator != 1:
        count += 1
    digits = str((value * 10**count).numerator).zfill(count + 1)
    return digits[: len(digits) - count], digits[len(digits) - count :]


def _at_least(bound: Bound) -> str:
    if bound.value < 0:
        return f"-({_below(bound)})|(0|[1-9][0-9]*){_FRACTION}"
    return _above(bound)


def _at_most(bound: Bound) -> str:
    if bound.value < 0:
        return f"-({_above(bound)})"
    if bound.value == 0 and bound.is_open:
        return f"-({_above(bound)})"
    return f"-(0|[1-9][0-9]*){_FRACTION}|{_below(bound)}"


def _above(bound: Bound) -> str:
    """Texts without a sign of what is at least an absolute value; more, if it is open."""
    whole, places = _parts(bound.value)
    size = len(whole)
    ways = [rf"[1-9][0-9]{{{size},}}{_FRACTION}"]
    for at, digit in enumerate(whole):
        if digit != "9":
            rest = rf"[0-9]{{{size - at - 1}}}{_FRACTION}"
            ways.append(f"{whole[:at]}[{int(digit) + 1}-9]{rest}")
    for at, digit in enumerate(places):
        if digit != "9":
            ways.append(rf"{whole}\.{places[:at]}[{int(digit) + 1}-9][0-9]*")
    if bound.is_open:
        ways.append(rf"{whole}\.{places}[0-9]*[1-9][0-9]*")
    else:
        ways.append(rf"{whole}\.{places}[0-9]*" if places else whole + _FRACTION)
    return "|".join(ways)


def _below(bound: Bound) -> str:
    """Texts without a sign of what is at most an absolute value; less, if it is open."""
    whole, places = _parts(bound.value)
    size = len(whole)
    ways = [rf"(0|[1-9][0-9]{{0,{size - 2}}}){_FRACTION}"] if size > 1 else []
    for at, digit in enumerate(whole):
        least = int(at == 0 and size > 1)
        if int(digit) > least:
            rest = rf"[0-9]{{{size - at - 1}}}{_FRACTION}"
            ways.append(f"{whole[:at]}[{least}-{int(digit) - 1}]{rest}")
    for at, digit in enumerate(places):
        if digit != "0":
            ways.append(rf"{whole}\.{places[:at]}[0-{int(digit) - 1}][0-9]*")
    ways += [rf"{whole}\.{places[:at]}" for at in range(1, len(places))]
    if places:
        ways.append(whole)
    if not bound.is_open:
        ways.append(rf"{whole}\.{places}0*" if places else rf"{whole}(\.0+)?")
    return "|".join(ways)
