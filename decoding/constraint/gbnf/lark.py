"""Writes a grammar of llama.cpp in the Lark form."""

from collections.abc import Iterator, Mapping

from decoding.constraint.checks.longest_way import groups
from decoding.constraint.gbnf.lexemes import Outline, Part
from decoding.constraint.gbnf.rules import (
    EMPTY,
    ROOT,
    Chars,
    Choice,
    Node,
    Repeat,
    Rule,
    Sequence,
    named,
    read_rules,
)

_MOST_WAYS = 200
"""Ways through a rule beyond which what it ends with stays as it is."""

_MOST_INLINED, _DEEPEST_INLINED = 1000, 40
"""Characters and depth of a rule that is written where it is named. A guess; not measured."""

_MOST_LOOKED_AT, _LONGEST_LEXEME = 2000, 1 << 17
"""Characters of a grammar beyond which only characters are lexemes; a regular one is one lexeme, up
to the longest."""


def gbnf_to_lark(text: str) -> str:
    """A grammar with the language that llama.cpp gives to a GBNF grammar; left recursion too.

    Raises:
        GrammarError: as of read_rules.
        RecursionError: it is nested too deeply.
    """
    rules = _looped(read_rules(text))
    return "\n".join(_Writer(rules).lines())


def _looped(rules: Mapping[str, Node]) -> Mapping[str, Node]:
    """The same language, with loops for rules that end with themselves, directly or not.

    A rule r ::= x r | y matches what x* y matches, whatever x is. The matcher would keep each
    unended r of a text; llama.cpp does not.
    """
    rules = dict(rules)
    for group in _groups(rules):
        done: set[str] = set()
        for name in group:
            loops, exits = _ways(rules[name], name, {other: rules[other] for other in done})
            if loops and exits and len(loops) + len(exits) <= _MOST_WAYS:
                again = Repeat(Choice(tuple(loops)), 0, None)
                rules[name] = Sequence((again, Choice(tuple(exits))))
            if not loops or (exits and len(loops) + len(exits) <= _MOST_WAYS):
                done.add(name)
    return rules


def _ways(node: Node, name: str, done: Mapping[str, Node]) -> tuple[list[Node], list[Node]]:
    """The ways through a part of a rule that end with the rule, without it, and the others.

    done: rules to look into, of which none ends with itself.
    """
    loops: list[Node]
    exits: list[Node]
    match node:
        case Rule(other) if other == name:
            return [EMPTY], []
        case Rule(other) if other in done:
            loops, exits = _ways(done[other], name, done)
        case Sequence((*before, last)):
            loops, exits = _ways(last, name, done)
            loops = [Sequence((*before, one)) for one in loops]
            exits = [Sequence((*before, one)) for one in exits]
        case Choice(items):
            ways = [_ways(item, name, done) for item in items]
            loops = [one for found, _ in ways for one in found]
            exits = [one for _, found in ways for one in found]
        case Repeat(item, 0, 1):
            loops, exits = _ways(item, name, done)
            exits = [*exits, EMPTY]
        case _:
            return [], [node]
    return (loops, exits) if loops else ([], [node])


def _groups(rules: Mapping[str, Node]) -> Iterator[list[str]]:
    """The rules that the root needs, those together that need each other, after those they need."""
    names = [ROOT, *(name for name in rules if name != ROOT)]
    numbers = {name: number for number, name in enumerate(names)}
    edges = [sorted(numbers[other] for other in named(rules[name])) for name in names]
    return ([names[number] for number in group] for group in groups(edges))


class _Writer:
    """Writes rules; those that do not need themselves are written where they are named."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self._names: dict[str, str] = {}
        self._bodies: dict[str, str] = {}
        """Names of what is written on a line of its own, by what it is."""
        self._sizes: dict[str, tuple[int, int]] = {}
        for name, *others in _groups(rules):
            size, depth = self._sizes[name] = self._size(rules[name])
            needs_itself = others or name in named(rules[name])
            if needs_itself or name == ROOT or size > _MOST_INLINED or depth > _DEEPEST_INLINED:
                for written in (name, *others):
                    self._sizes[written] = self._size(rules[written])
                    self._names[written] = f"rule{len(self._names)}"
        size = sum(self._sizes[name][0] for name in self._names)
        most = _MOST_LOOKED_AT if len(self._names) > 1 else _LONGEST_LEXEME
        self._is_looked_at = size <= most
        if not self._is_looked_at:
            self._names = {name: f"rule{place}" for place, name in enumerate(self._sizes)}
        self._names[ROOT] = "start"

    def lines(self) -> Iterator[str]:
        outline = Outline(self._rules, self._names, is_looked_at=self._is_looked_at)
        for name, part in outline.parts.items():
            yield f"{self._names[name]}: {self._written(part)}"
        for body, name in self._bodies.items():
            yield f"{name}: {body}"

    def _size(self, node: Node) -> tuple[int, int]:
        """Characters and depth of a part of a grammar, where rules stand in for their text."""
        match node:
            case Sequence(items) | Choice(items):
                sizes = [self._size(item) for item in items] or [(0, 0)]
                return sum(size for size, _ in sizes), 1 + max(depth for _, depth in sizes)
            case Repeat(item):
                size, depth = self._size(item)
                return size, depth + 1
            case Rule(name):
                inlined = name not in self._names and name in self._sizes
                size, depth = self._sizes[name] if inlined else (1, 0)
                return size, depth + 1
            case Chars():
                return 1, 1

    def _written(self, part: Part) -> str:
        if part.is_lexeme:
            return self._named("T", f"/{self._expression(part.node)}/")
        children = [self._written(child) for child in part.children]
        match part.node:
            case Rule(name):
                return self._names[name]
            case Choice():
                return self._named("part", " | ".join(children))
            case Repeat(_, least, most):
                return self._named("part", f"({children[0]}){_times(least, most)}")
            case _:
                return " ".join(children)

    def _named(self, kind: str, body: str) -> str:
        """The name of a line of its own: the library reads 29 groups within each other at most."""
        return self._bodies.setdefault(body, f"{kind}{len(self._bodies)}")

    def _expression(self, node: Node) -> str:
        """The regular expression of a part."""
        match node:
            case Chars(ranges):
                listed = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)
                return f"[{listed}]" if listed else r"[^\x{0}-\x{10ffff}]"
            case Sequence(items):
                return "".join(map(self._expression, items)) or "(?:)"
            case Choice(items):
                return f"(?:{'|'.join(map(self._expression, items))})"
            case Repeat(item, least, most):
                return f"(?:{self._expression(item)}){_times(least, most)}"
            case Rule(name):
                return self._expression(self._rules[name])


def _times(least: int, most: int | None) -> str:
    match least, most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _:
            return f"{{{least},{'' if most is None else most}}}"
