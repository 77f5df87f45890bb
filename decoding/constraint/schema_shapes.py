"""What the text of a value looks like, one shape for each case and type."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

from decoding.constraint.grammar import plain_reason, validated
from decoding.constraint.schema_cases import (
    SAFE_DIGITS,
    Case,
    Conjunctions,
    Numbers,
    fields,
    items,
    names,
    text,
    unsupported,
    unusable,
)

_CHARACTER = r'([^"\\\x00-\x1f]|\\(["\\bfnrt]|u00([01][0-9a-fA-F]|7[fF])))'
"""One character of a text. Only those that have no other way are written by their number, so that
a name has one way to be written, and the names of other properties can be told from it."""

NAME = r'"([^"\\\x00-\x1f]|\\["\\bfnrt])*"'
"""Any name of a property."""

_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
)
"""Formats that are kept to. Others only annotate, as all do in JSON Schema unless asked for."""

_LONGEST = 1 << 30
"""A bound of a length that no reply reaches."""

_MOST_EXACT = 1 << 53
"""Whole numbers up to it are told apart by doubles."""

_LARGEST_STEP = 10_000
"""Of a step, its point left out, that the library counts in; 999,983 took it 20 s."""

_MOST_LISTED = 500
"""Multiples that are listed rather than computed."""

_MOST_POSSIBLE = 2_000
"""Rules of texts that are known to match something or not, each found in a millisecond."""

_JSON = "%json "


@dataclass(frozen=True, slots=True)
class Text:
    """What a rule of the grammar says: texts, or a terminal."""

    rule: str


@dataclass(frozen=True, slots=True)
class Array:
    """first: schemas of the first items, rest: of each further one; most: None if unbounded."""

    first: tuple[tuple[object, ...], ...]
    rest: tuple[object, ...]
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    value: tuple[object, ...]
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Object:
    """named: properties in their order, each at most once; others: any number, by their names."""

    named: tuple[Property, ...]
    others: tuple[Property, ...]
    least: int
    most: int | None


Shape = Text | Array | Object
Terminal = Callable[[str], str]
"""Names a terminal that is defined so."""


class Shapes:
    """Finds the shapes of schemas that must match together.

    terminal: adds a terminal to the grammar. has_formats: whether formats are kept to; who asks
    whether two schemas can match the same value may not count on that.
    """

    def __init__(
        self, conjunctions: Conjunctions, terminal: Terminal, *, has_formats: bool = True
    ) -> None:
        self._conjunctions = conjunctions
        self._terminal = terminal
        self._formats = _FORMATS if has_formats else frozenset[str]()
        self._parts: dict[int, tuple[object, Mapping[str, Any]]] = {}
        """Parts made of values, by the value's identity: a value has one."""

    def of(self, schemas: Sequence[object]) -> Iterator[Shape]:
        """The shapes of values that match all of some schemas.

        Raises:
            GrammarError: they use what is not supported, or are malformed.
        """
        for case in self._conjunctions.cases(schemas):
            if case.values is None:
                yield from self._unlisted(case)
            else:
                yield from self._listed(case, case.values)

    def _listed(self, case: Case, values: Sequence[object]) -> Iterator[Shape]:
        texts, strings = list[str](), list[str]()
        expressions = self._expressions(case)
        for value in values:
            if isinstance(value, list | dict):
                kind = "array" if isinstance(value, list) else "object"
                if kind in case.types:
                    parts = (*case.parts, self._part(cast("object", value)))
                    yield from self._unlisted(Case(frozenset((kind,)), parts))
            elif isinstance(value, str) and expressions:
                strings += [value] if _has_length(case, value) and "string" in case.types else []
            elif self._fits(case, value):
                is_number = not (value is None or isinstance(value, bool | str))
                texts.append(text(Fraction(cast("Any", value))) if is_number else _json(value))
        if texts:
            yield Text(self._terminal(" | ".join(map(_json, texts))))
        rule = _library({"allOf": [*expressions, {"enum": strings}]})
        if strings and _is_possible(rule):
            yield Text(rule)

    def _unlisted(self, case: Case) -> Iterator[Shape]:
        types = case.types
        if "null" in types:
            yield Text('"null"')
        if "boolean" in types:
            yield Text('"true"')
            yield Text('"false"')
        if "integer" in types:
            yield from self._numbers(case.numbers)
        if "string" in types and (rule := self.string(case)) is not None:
            yield Text(rule)
        if "array" in types:
            yield self._array(case)
        if "object" in types:
            yield self._object(case)

    def _part(self, value: object) -> Mapping[str, Any]:
        """A schema that a list or an object alone matches."""
        if (key := id(value)) in self._parts:
            return self._parts[key][1]
        made: Mapping[str, Any]
        if isinstance(value, list):
            inner = [{"const": item} for item in cast("list[object]", value)]
            size = len(inner)
            made = {"type": "array", "prefixItems": inner, "minItems": size, "maxItems": size}
        else:
            of = cast("dict[str, object]", value)
            made = {
                "type": "object",
                "properties": {name: {"const": item} for name, item in of.items()},
                "required": list(of),
                "additionalProperties": False,
            }
        self._parts[key] = (cast("object", value), made)
        return made

    def _fits(self, case: Case, value: object) -> bool:
        match value:
            case None:
                return "null" in case.types
            case bool():
                return "boolean" in case.types
            case str():
                return "string" in case.types and self._matches(case, value)
            case _:
                exact = Fraction(cast("Any", value))
                kind = "integer" if exact.denominator == 1 else "fraction"
                return kind in case.types and case.numbers.has(exact)

    def _numbers(self, numbers: Numbers) -> Iterator[Text]:
        if numbers.is_empty:
            return
        closed = numbers.closed()
        low, high, step = closed.low, closed.high, closed.whole_step
        if low is not None and high is not None and low.value == high.value:
            yield Text(self._terminal(_json(text(low.value))))
        elif numbers.step is None:
            expressions = [f"/{expression}/" for expression in closed.expressions]
            yield Text(self._terminal(" & ".join(expressions)))
        elif low and high and step and (high.value - low.value) / step <= _MOST_LISTED:
            count = int((high.value - low.value) / step) + 1
            texts = [_json(text(low.value + step * index)) for index in range(count)]
            yield Text(self._terminal(" | ".join(texts)))
        else:
            yield Text(_multiples(closed))

    def string(self, case: Case) -> str | None:
        """The rule of the texts that match a case of which no values are listed; None if none."""
        least, most = case.most("minLength") or 0, case.least("maxLength")
        if (most is not None and least > most) or least > _LONGEST:
            return None
        most = None if most is None or most > _LONGEST else most
        if not (parts := self._expressions(case)):
            size = f"{{{least},{'' if most is None else most}}}"
            return self._terminal(f'/"{_CHARACTER}{size}"/')
        bounds = {"minLength": least} | ({} if most is None else {"maxLength": most})
        rule = _library({"type": "string", **bounds, "allOf": parts})
        return rule if _is_possible(rule) else None

    def _matches(self, case: Case, value: str) -> bool:
        parts = self._expressions(case)
        fits = not parts or _is_possible(_library({"allOf": [*parts, {"const": value}]}))
        return fits and _has_length(case, value)

    def _expressions(self, case: Case) -> list[Mapping[str, object]]:
        """What a case asks of texts beside their length, each once."""
        found = [{"pattern": pattern} for pattern in case.given("pattern")]
        found += [{"format": one} for one in case.given("format") if str(one) in self._formats]
        return [one for at, one in enumerate(found) if one not in found[:at]]

    def _array(self, case: Case) -> Array:
        least, most = case.most("minItems") or 0, case.least("maxItems")
        if any(case.given("uniqueItems")) and (most is None or most > 1):
            raise unsupported("uniqueItems")
        lists = [_item_schemas(part) for part in case.parts]
        size = max(len(first) for first, _ in lists) if lists else 0
        size = size if most is None else min(size, most)
        first = [
            tuple(first[at] if at < len(first) else rest for first, rest in lists)
            for at in range(size)
        ]
        return Array(tuple(first), tuple(rest for _, rest in lists), least, most)

    def _object(self, case: Case) -> Object:
        required = [name for part in case.parts for name in names(part, "required")]
        known = [name for part in case.parts for name in fields(part, "properties")]
        wanted = list(dict.fromkeys((*known, *required)))
        allowed = self._names(case)
        if allowed is None:
            fitting, others = wanted, self._others(case, wanted)
        else:
            listed, rules = allowed
            asked = [*case.given("propertyNames")]
            fitting = [name for name in wanted if any(self.of([*asked, {"const": name}]))]
            if fitting or _pattern_names(case):  # not to be told from names of the rules
                rules = ()
            rest = tuple(part.get("additionalProperties", True) for part in case.parts)
            others = tuple(Property(rule, rest) for rule in rules)
            fitting += [name for name in listed if name not in wanted]
        needed, possible = frozenset(required), frozenset(fitting)
        named = tuple(
            Property(
                _json(_json(name)),
                self._value(case, name) if name in possible else (False,),
                name in needed,
            )
            for name in dict.fromkeys((*fitting, *required))
        )
        least, most = case.most("minProperties") or 0, case.least("maxProperties")
        if least > len(named) + bool(others) and others:  # they may be the same ones again
            raise unsupported("minProperties")
        return Object(named, others, least, most)

    def _names(self, case: Case) -> tuple[Sequence[str], Sequence[str]] | None:
        """Names that propertyNames lists, and rules of those that it describes; None if any may."""
        asked = [schema for schema in case.given("propertyNames") if schema not in (True, {})]
        cases = [one for one in self._conjunctions.cases(asked) if "string" in one.types]
        if any(one.values is None and self._is_any_text(one) for one in cases):
            return None
        listed = [
            value
            for one in cases
            for value in one.values or ()
            if isinstance(value, str) and self._fits(one, value)
        ]
        rules = [self.string(one) for one in cases if one.values is None]
        return listed, [rule for rule in rules if rule is not None]

    def _is_any_text(self, case: Case) -> bool:
        is_short = case.least("maxLength") is not None
        return not (is_short or case.most("minLength") or self._expressions(case))

    def _value(self, case: Case, name: str) -> tuple[object, ...]:
        schemas: list[object] = []
        for part in case.parts:
            known = fields(part, "properties")
            found = [known[name]] if name in known else []
            patterns = fields(part, "patternProperties")
            found += [schema for one, schema in patterns.items() if _finds(one, name)]
            schemas += found or [part.get("additionalProperties", True)]
        return tuple(schemas)

    def _others(self, case: Case, taken: Sequence[str]) -> tuple[Property, ...]:
        """Properties of other names than those taken, where names are not limited.

        Where a part has patterns, names that match none are left out, and those of patterns that
        match a name taken: there is no way to tell them apart. So they never come; what comes
        matches.
        """
        patterns = _pattern_names(case)
        if not patterns:
            rest = tuple(part.get("additionalProperties", True) for part in case.parts)
            if any(one is False for one in rest):
                return ()
            not_taken = f" & ~({' | '.join(_json(_json(name)) for name in taken)})"
            rule = f"/{NAME}/{not_taken if taken else ''}"
            return (Property(self._terminal(rule), rest),)
        for at, pattern in enumerate(patterns):
            for other in patterns[:at]:
                both = _library({"allOf": [{"pattern": pattern}, {"pattern": other}]})
                if _is_possible(both):
                    raise unusable("two of its patternProperties can match the same name")
        found: list[Property] = []
        for pattern in patterns:
            if any(_finds(pattern, name) for name in taken):
                continue
            rest: tuple[object, ...] = tuple(
                fields(part, "patternProperties").get(
                    pattern, part.get("additionalProperties", True)
                )
                for part in case.parts
            )
            rule = _library({"type": "string", "pattern": pattern})
            found += [Property(rule, rest)] if _is_possible(rule) else []
        return tuple(found)


def _item_schemas(part: Mapping[str, Any]) -> tuple[Sequence[object], object]:
    if isinstance(part.get("items"), list):  # before 2020
        return items(part, "items"), part.get("additionalItems", True)
    return items(part, "prefixItems"), part.get("items", True)


def _has_length(case: Case, value: str) -> bool:
    most = case.least("maxLength")
    return len(value) >= (case.most("minLength") or 0) and (most is None or len(value) <= most)


def _pattern_names(case: Case) -> list[str]:
    return list(
        dict.fromkeys(one for part in case.parts for one in fields(part, "patternProperties"))
    )


def _finds(pattern: str, name: str) -> bool:
    return _is_possible(_library({"allOf": [{"pattern": pattern}, {"const": name}]}))


def _multiples(numbers: Numbers) -> str:
    """The rule of multiples, which the library knows; bounds are among them.

    It counts in doubles: none is written beyond what they tell apart.

    Raises:
        GrammarError: a number is not exact there.
    """
    step = numbers.whole_step or Fraction(1)
    low, high = numbers.low, numbers.high
    kind, most = "integer" if numbers.is_integer else "number", _MOST_EXACT // step * step
    schema: dict[str, object] = {"type": kind, "multipleOf": _as_counted(step)}
    if low is not None:
        schema["minimum"] = _as_double(max(low.value, -most))
    if high is not None:
        schema["maximum"] = _as_double(min(high.value, most))
    return _library(schema)


def _as_double(value: Fraction) -> int | float:
    digits = text(value).strip("-0").replace(".", "")
    if abs(value) > _MOST_EXACT or (value.denominator != 1 and len(digits) > SAFE_DIGITS):
        raise unsupported("multipleOf")
    return int(value) if value.denominator == 1 else float(value)


def _as_counted(step: Fraction) -> int | float:
    """A step, if the library finds the decimal number that it is: it multiplies by 10."""
    double, places = float(step), 0
    while double != int(double) and places < 20:
        double, places = double * 10, places + 1
    if double > _LARGEST_STEP or Fraction(int(double), 10**places) != step:
        raise unsupported("multipleOf")
    return int(step) if step.denominator == 1 else float(step)


def _library(schema: Mapping[str, object]) -> str:
    """A rule of what the library makes of a schema of texts or numbers."""
    return f"{_JSON}{_json({'x-guidance': {'whitespace_flexible': False}, **schema})}"


@lru_cache(_MOST_POSSIBLE)
def _is_possible(rule: str) -> bool:
    """Whether any text matches a rule.

    Raises:
        GrammarError: it cannot be read.
    """
    grammar = f'{{"grammars": [{{"json_schema": {rule.removeprefix(_JSON)}}}]}}'
    is_wrong, messages = validated(grammar)
    if is_wrong and "Unsatisfiable schema" not in messages[0]:
        raise unusable(plain_reason(messages[0]))
    return not is_wrong


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
