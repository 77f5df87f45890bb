"""Finds schemas that refer to themselves so that nothing which ends can match them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from decoding.constraint.checks.json_pointer import pointed_at

_MOST_VISITS = 100_000
"""Parts of a schema looked at, 0.1 s; one that needs more is taken to be finite."""


def is_endless(schema: Mapping[str, Any]) -> bool:
    """Whether every value that matches a schema would contain another such value without end.

    A part whose keywords say nothing of that, or that cannot be found, counts as finite.
    """
    try:
        return not _Search(schema).is_finite(schema)
    except _TooLargeError:
        return False


class _TooLargeError(Exception):
    """The schema has too many parts."""


class _Search:
    """The least set of references whose targets have a finite value, and what follows of it."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._visits = 0
        self._finite: set[str] = set()
        targets = {ref: pointed_at(schema, ref) for ref in set(self._references(schema))}
        is_growing = True
        while is_growing:
            found = {
                ref
                for ref, target in targets.items()
                if ref not in self._finite and self.is_finite(target)
            }
            self._finite |= found
            is_growing = bool(found)

    def is_finite(self, part: object) -> bool:
        """Whether a finite value matches a part, as far as references are known to have one."""
        self._count()
        part = _object(part)
        reference = part.get("$ref")
        if isinstance(reference, str) and reference not in self._finite:
            return False
        if not all(map(self.is_finite, _list(part.get("allOf")))):
            return False
        for choice in ("anyOf", "oneOf"):
            options = _list(part.get(choice))
            if options and not any(map(self.is_finite, options)):
                return False
        return all(map(self.is_finite, _needed(part)))

    def _references(self, part: object) -> Iterator[str]:
        self._count()
        fields = _object(part)
        if isinstance(fields.get("$ref"), str):
            yield fields["$ref"]
        for value in (*fields.values(), *_list(part)):
            yield from self._references(value)

    def _count(self) -> None:
        self._visits += 1
        if self._visits > _MOST_VISITS:
            raise _TooLargeError


def _needed(part: Mapping[str, Any]) -> Iterable[object]:
    """What every value of a part contains, where only objects or only arrays match it."""
    kind = part.get("type")
    if kind == "object":
        named = _object(part.get("properties"))
        return [named.get(name) for name in _list(part.get("required")) if isinstance(name, str)]
    least = part.get("minItems")
    if kind == "array" and isinstance(least, int) and least > 0:
        first = _list(part.get("prefixItems"))[:least]
        return [*first, part.get("items")] if len(first) < least else first
    return ()


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []
