"""What a value must be to match several JSON schemas at once, one case for each way to do so."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, gcd, lcm
from typing import Any, cast
from urllib.parse import unquote

from decoding.constraint.checks import pointed_at
from decoding.constraint.grammar import GrammarError

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


Part = Mapping[str, Any]
"""A schema that is an object."""

_TYPES = {
    "null": {"null"},
    "boolean": {"boolean"},
    "integer": {"integer"},
    "number": {"integer", "fraction"},
    "string": {"string"},
    "array": {"array"},
    "object": {"object"},
}
ALL_TYPES = frozenset(name for names in _TYPES.values() for name in names)

_UNSUPPORTED: Mapping[str, tuple[object, ...]] = {
    "not": (False,),
    "if": (),
    "contains": (),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "dependencies": ({},),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
    "$dynamicRef": (),
    "$recursiveRef": (),
    "x-guidance": (),
}
"""What a grammar cannot express, or would change what it means; with values that ask for nothing.

x-guidance: by it a schema tells the library how exactly to keep to it.
"""

_MOST_CASES = 2_000
"""Ways to match some schemas together; 16,000 of 28 properties each took 7 s."""

_MOST_STEPS = 100_000
"""Schemas that are joined to others, in about a second."""

_TOO_MANY = "it has too many parts that must match together"


def unusable(why: str) -> GrammarError:
    return GrammarError("the JSON schema cannot be used", why)


def unsupported(*keywords: str) -> GrammarError:
    """The error that names keywords which cannot be guaranteed."""
    listed = ", ".join(sorted(keywords))
    return unusable(f"it uses keywords that specchat cannot guarantee: {listed}")


@dataclass(frozen=True, slots=True)
class _Choice:
    """Schemas of which one must match; above: those that contain it without a step into a value."""

    options: Sequence[object]
    above: frozenset[int]


@dataclass(frozen=True, slots=True)
class Case:
    """One way to match: by these types, all of these parts, and if not None one of these values."""

    types: frozenset[str] = ALL_TYPES
    parts: tuple[Part, ...] = ()
    values: tuple[object, ...] | None = None
    choices: tuple[_Choice, ...] = ()

    def given(self, keyword: str) -> Iterator[Any]:
        """The values of a keyword in all parts that have it."""
        return (part[keyword] for part in self.parts if keyword in part)

    def most(self, keyword: str) -> int | None:
        """The largest of some counts, None if there is none."""
        return max((_count(keyword, value) for value in self.given(keyword)), default=None)

    def least(self, keyword: str) -> int | None:
        """The smallest of some counts, None if there is none."""
        return min((_count(keyword, value) for value in self.given(keyword)), default=None)

    @property
    def numbers(self) -> Numbers:
        lows, highs = list[Bound](), list[Bound]()
        for part in self.parts:
            for bounds, inclusive, exclusive in (
                (lows, "minimum", "exclusiveMinimum"),
                (highs, "maximum", "exclusiveMaximum"),
            ):
                is_open = part.get(exclusive, False)  # a number, or true as in draft 4
                if inclusive in part:
                    bounds.append(Bound(number(part, inclusive), is_open is True))
                if not isinstance(is_open, bool):
                    bounds.append(Bound(number(part, exclusive), is_open=True))
        step = None
        for part in self.parts:
            if "multipleOf" in part:
                if (one := number(part, "multipleOf")) <= 0:
                    raise unusable("its multipleOf is not positive")
                step = both(step, one)
        low = max(lows, key=lambda bound: (bound.value, bound.is_open), default=None)
        high = min(highs, key=lambda bound: (bound.value, not bound.is_open), default=None)
        return Numbers(low, high, "fraction" not in self.types, step)


class Conjunctions:
    """Takes schemas apart that must match together.

    is_empty: whether no value matches all of some schemas, as far as that can be told.
    """

    def __init__(self, root: Part, is_empty: Callable[[Sequence[object]], bool]) -> None:
        self._root = root
        self._is_empty = is_empty
        self._steps = 0

    def cases(self, schemas: Sequence[object]) -> list[Case]:
        """The ways to match all of some schemas.

        Raises:
            GrammarError: they use what is not supported, or are malformed.
        """
        case: Case | None = Case()
        for schema in schemas:
            case = case and self._joined(case, schema, frozenset())
        found: list[Case] = []
        waiting = [case] if case else []
        while waiting:
            case = waiting.pop()
            if not case.choices:
                found.append(case)
                continue
            *rest, choice = case.choices
            case = replace(case, choices=tuple(rest))
            options = [self._joined(case, option, choice.above) for option in choice.options]
            waiting += [option for option in options if option]
            if len(waiting) + len(found) > _MOST_CASES:
                raise unusable(_TOO_MANY)
        return found[::-1]

    def _joined(self, case: Case, schema: object, above: frozenset[int]) -> Case | None:
        """A case that matches a schema too; None if nothing does, or only without end."""
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise unusable(_TOO_MANY)
        if isinstance(schema, bool):
            return case if schema else None
        if not isinstance(schema, Mapping):
            raise unusable("a schema in it is neither an object nor a boolean")
        part = cast("Part", schema)
        if id(part) in above:
            return None
        if any(part is known for known in case.parts):
            return case
        self._check(part)
        types = case.types & _types(part)
        values = _common(case.values, part)
        if not types or values == ():
            return None
        above = above | {id(part)}
        self._check_disjoint(items(part, "oneOf"))
        options = [items(part, keyword)[::-1] for keyword in ("oneOf", "anyOf") if keyword in part]
        choices = (*case.choices, *(_Choice(each, above) for each in options))
        joined: Case | None = Case(types, (*case.parts, part), values, choices)
        inner = [self._target(part["$ref"])] if "$ref" in part else []
        for other in (*inner, *items(part, "allOf")):
            joined = joined and self._joined(joined, other, above)
        return joined

    def _check(self, part: Part) -> None:
        wrong = [
            keyword
            for keyword, harmless in _UNSUPPORTED.items()
            if keyword in part and part[keyword] not in harmless
        ]
        wrong += ["$id"] if part is not self._root and isinstance(part.get("$id"), str) else []
        if wrong:
            raise unsupported(*wrong)

    def _check_disjoint(self, options: Sequence[object]) -> None:
        for at, option in enumerate(options):
            for other in options[:at]:
                if not self._is_empty((option, other)):
                    raise unusable("more than one part of a oneOf in it can match the same value")

    def _target(self, reference: object) -> object:
        place = unquote(str(reference)).removeprefix(str(self._root.get("$id", "")))
        found = pointed_at(self._root, place or "#")
        if found is None:
            raise unusable(f"a reference in it leads nowhere: {str(reference)[:100]}")
        return found


def number(part: Part, keyword: str) -> Fraction:
    """The number of a keyword.

    Raises:
        GrammarError: it is none.
    """
    value = part[keyword]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise unusable(f"its {keyword} is not a number")
    return Fraction(value)


def items(part: Part, keyword: str) -> Sequence[object]:
    """The list of a keyword, empty without it.

    Raises:
        GrammarError: it is none.
    """
    if not isinstance(value := part.get(keyword, []), list):
        raise unusable(f"its {keyword} is not a list")
    return cast("list[object]", value)


def fields(part: Part, keyword: str) -> Mapping[str, object]:
    """The object of a keyword, empty without it.

    Raises:
        GrammarError: it is none.
    """
    if not isinstance(value := part.get(keyword, {}), dict):
        raise unusable(f"its {keyword} is not an object")
    return cast("dict[str, object]", value)


def names(part: Part, keyword: str) -> Sequence[str]:
    """The list of texts of a keyword, empty without it.

    Raises:
        GrammarError: it is none.
    """
    found = [name for name in items(part, keyword) if isinstance(name, str)]
    if len(found) < len(items(part, keyword)):
        raise unusable(f"its {keyword} has items that are not text")
    return found


def _identity(value: object) -> Hashable:
    """What is equal for values that are the same JSON; true is not 1, and 1.0 is."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("array", tuple(map(_identity, cast("list[object]", value))))
    if isinstance(value, dict):
        inner = cast("dict[str, object]", value).items()
        return ("object", frozenset((name, _identity(one)) for name, one in inner))
    return cast("Hashable", value)


def _types(part: Part) -> frozenset[str]:
    if "type" not in part:
        return ALL_TYPES
    named = part["type"]
    found: set[str] = set()
    for name in cast("list[object]", named if isinstance(named, list) else [named]):
        if not isinstance(name, str) or name not in _TYPES:
            raise unusable(f"Invalid type: {str(name)[:100]}")
        found |= _TYPES[name]
    return frozenset(found)


def _common(values: tuple[object, ...] | None, part: Part) -> tuple[object, ...] | None:
    lists = [items(part, "enum")] if "enum" in part else []
    lists += [[part["const"]]] if "const" in part else []
    for allowed in lists:
        known = None if values is None else set(map(_identity, values))
        each = {_identity(one): one for one in allowed}
        values = tuple(one for key, one in each.items() if known is None or key in known)
    return values


def _count(keyword: str, value: object) -> int:
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        count = int(value)
        if count == value and count >= 0:
            return count
    raise unusable(f"its {keyword} is not a count")
