"""A JSON schema as a grammar in the Lark form."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from decoding.constraint.schema_cases import Conjunctions, unsupported, unusable
from decoding.constraint.schema_shapes import Array, Object, Property, Shape, Shapes, Text

_COLON, _COMMA = '": "', '", "'
"""JSON on one line, written as most models write it.

Free white space would let a small model write blanks until its reply is cut off, and leave little
of the text certain.
"""

_NOTHING = '""'

_MOST_NODES = 20_000
"""Combinations of schemas that a value must match together. A guess; not measured."""

_LONGEST = 1 << 22
"""Characters of its terminals and parts. A guess; not measured."""

_MOST_COUNTED = 60
"""Properties of an object that bounds how many there are: it takes a rule for each pair of them."""


def schema_grammar(schema: Mapping[str, Any]) -> str:
    """The grammar of the JSON texts of the values that match a schema.

    It may be narrower than the schema, where the docs say so, and is never wider. Properties come
    in the order of the schema.

    Raises:
        GrammarError: it uses what is not supported, is malformed, or no value matches it.
    """
    return _Writer(schema).text


@dataclass(slots=True)
class _Node:
    schemas: Sequence[object]
    rule: str
    shapes: list[Shape] = field(default_factory=list[Shape])
    is_possible: bool = False
    """Whether a finite value is known to match."""


class _Writer:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._names: dict[str, str] = {}
        """Terminals and rules by what they are."""
        self._size = 0
        self._nodes: dict[tuple[int, ...], _Node] = {}
        self._order: list[_Node] = []
        self._emptiness: dict[tuple[int, ...], bool] = {}
        """Whether nothing matches some schemas; False while that is being looked for."""
        conjunctions = Conjunctions(schema, self._is_empty)
        self._shapes = Shapes(conjunctions, self._terminal)
        self._loose = Shapes(conjunctions, self._terminal, has_formats=False)
        root = self._node((schema,))
        for node in self._order:  # it grows
            node.shapes += self._shapes.of(node.schemas)
            for inner in (inner for shape in node.shapes for inner in _inside(shape)):
                self._node(inner)
        self._find_possible()
        if not root.is_possible:
            why = "nothing can match it, or only a value without end"
            raise unusable(f"it is unsatisfiable: {why}")
        nodes = [f"{node.rule}: {self._options(node)}" for node in self._order if node.is_possible]
        others = [f"{name}: {text}" for text, name in self._names.items()]
        self.text = "\n".join((f"start: {root.rule}", *nodes, *others))
        if not self.text.isascii() and self.text.encode("utf-8", "replace").decode() != self.text:
            raise unusable("a text in it has a character that cannot be written")

    def _terminal(self, text: str) -> str:
        return self._named("TEXT", text)

    def _rule(self, text: str) -> str:
        return self._named("part", text)

    def _named(self, kind: str, text: str) -> str:
        if text not in self._names:
            self._size += len(text)
            if self._size > _LONGEST:
                raise unusable("it is too large")
            self._names[text] = f"{kind}_{len(self._names)}"
        return self._names[text]

    def _node(self, schemas: Sequence[object]) -> _Node:
        key = _key(schemas)
        if key not in self._nodes:
            if len(self._nodes) == _MOST_NODES:
                raise unusable("it is too large")
            self._nodes[key] = node = _Node(schemas, f"value_{len(self._nodes)}")
            self._order.append(node)
        return self._nodes[key]

    def _is_empty(self, schemas: Sequence[object]) -> bool:
        """Whether it is certain that no value matches all of some schemas."""
        key = _key(schemas)
        if key not in self._emptiness:
            self._emptiness[key] = False
            self._emptiness[key] = not any(
                _is_possible(shape, lambda inner: not self._is_empty(inner))
                for shape in self._loose.of(schemas)
            )
        return self._emptiness[key]

    def _find_possible(self) -> None:
        """Find what a finite value matches: the least set."""

        def is_known(schemas: Sequence[object]) -> bool:
            return self._node(schemas).is_possible

        waiting, is_growing = self._order[::-1], True
        while is_growing:
            for node in waiting:
                node.is_possible = any(_is_possible(shape, is_known) for shape in node.shapes)
            left = [node for node in waiting if not node.is_possible]
            is_growing, waiting = len(left) < len(waiting), left

    def _options(self, node: _Node) -> str:
        def is_known(schemas: Sequence[object]) -> bool:
            return self._node(schemas).is_possible

        texts = [self._text(shape) for shape in node.shapes if _is_possible(shape, is_known)]
        return " | ".join(dict.fromkeys(texts))

    def _text(self, shape: Shape) -> str:
        match shape:
            case Text():
                return shape.rule
            case Array():
                return self._array(shape)
            case Object():
                return self._object(shape)

    def _array(self, array: Array) -> str:
        first, rest = [self._node(inner) for inner in array.first], self._node(array.rest)
        size = next((at for at, one in enumerate(first) if not one.is_possible), len(first))
        most = size if size < len(first) or not rest.is_possible else array.most
        text = ""
        if most is None or most > size:
            more = None if most is None else most - size
            text = _times(rest.rule, array.least - size, more, is_first=not size)
        for at in reversed(range(size)):
            text = f"{f'{_COMMA} ' if at else ''}{first[at].rule} {text}"
            text = text if at < array.least else f"({text})?"
        return f'"[" {text} "]"'

    def _object(self, shape: Object) -> str:
        named = [(self._property(one), one.is_required) for one in shape.named if self._may_be(one)]
        others = " | ".join(self._property(one) for one in shape.others if self._may_be(one))
        other = self._rule(others) if others else ""
        needed, most = sum(is_required for _, is_required in named), shape.most
        if shape.least > needed or (most is not None and (others or most < len(named))):
            return f'"{{" {self._counted(named, other, shape.least, most)} "}}"'
        if other:
            named.append((_times(other, 1, None, is_first=True), False))
        inner = self._rule(self._in_order(named)) if named else _NOTHING
        return f'"{{" {inner if needed or not named else f"{inner}?"} "}}"'

    def _may_be(self, one: Property) -> bool:
        return self._node(one.value).is_possible

    def _property(self, one: Property) -> str:
        return f"{one.name} {_COLON} {self._node(one.value).rule}"

    def _in_order(self, named: Sequence[tuple[str, bool]]) -> str:
        """One or more properties, each after all that it has before it, in halves of halves."""
        if len(named) == 1:
            return named[0][0]
        halves = named[: len(named) // 2], named[len(named) // 2 :]
        left, right = (self._rule(self._in_order(half)) for half in halves)
        match [any(is_required for _, is_required in half) for half in halves]:
            case [True, True]:
                return f"{left} {_COMMA} {right}"
            case [True, False]:
                return f"{left} ({_COMMA} {right})?"
            case [False, True]:
                return f"({left} {_COMMA})? {right}"
            case _:
                return f"{left} ({_COMMA} {right})? | {right}"

    def _counted(
        self, named: Sequence[tuple[str, bool]], other: str, least: int, most: int | None
    ) -> str:
        """So many properties; other ones, which may be equal, count as one at least."""
        if len(named) > _MOST_COUNTED:
            raise unsupported("minProperties", "maxProperties")
        row: list[str | None] = [
            _others(
                other, least - count, None if most is None else most - count, is_first=not count
            )
            for count in range(len(named) + 1)
        ]
        for at in reversed(range(len(named))):
            text, is_required = named[at]
            before, row = row, []
            for count in range(at + 1):
                taken, left = before[count + 1], before[count]
                ways = [] if left is None or is_required else [left]
                if taken is not None:
                    ways.append(f"{f'{_COMMA} ' if count else ''}{text} {taken}")
                row.append(self._rule(" | ".join(ways)) if ways else None)
        assert row[0] is not None, "only objects that can be are written"
        return row[0]


def _others(other: str, least: int, most: int | None, *, is_first: bool) -> str | None:
    """The rest of the properties of an object, None if they cannot be so many."""
    if least > bool(other) or (most is not None and most < 0):
        return None
    if not other or most == 0:
        return _NOTHING if least <= 0 else None
    return _times(other, least, most, is_first=is_first)


def _times(item: str, least: int, most: int | None, *, is_first: bool) -> str:
    """So many of an item, separated from each other and from what is before."""
    if is_first:
        more = _times(item, least - 1, None if most is None else most - 1, is_first=False)
        return f"{item} {more}" if least > 0 else f"({item} {more})?"
    if most == 0:
        return _NOTHING
    return f"({_COMMA} {item}){{{max(least, 0)},{'' if most is None else most}}}"


def _key(schemas: Sequence[object]) -> tuple[int, ...]:
    """Of the schemas that must match: the same for the same ones."""
    return tuple(dict.fromkeys(id(one) for one in schemas if one is not True))


def _inside(shape: Shape) -> Sequence[Sequence[object]]:
    match shape:
        case Text():
            return ()
        case Array():
            return (*shape.first, shape.rest)
        case Object():
            return [one.value for one in (*shape.named, *shape.others)]


def _is_possible(shape: Shape, is_possible: Callable[[Sequence[object]], bool]) -> bool:
    match shape:
        case Text():
            return True
        case Array():
            needed = [*shape.first[: shape.least]]
            needed += [shape.rest] if shape.least > len(shape.first) else []
            is_bounded = shape.most is not None and shape.most < shape.least
            return not is_bounded and all(map(is_possible, needed))
        case Object():
            needed = [one.value for one in shape.named if one.is_required]
            if shape.most is not None and max(len(needed), shape.least) > shape.most:
                return False
            if not all(map(is_possible, needed)):
                return False
            if len(needed) >= shape.least:
                return True
            known = sum(is_possible(one.value) for one in shape.named)
            return known + any(is_possible(one.value) for one in shape.others) >= shape.least
