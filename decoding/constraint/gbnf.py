"""Which parts of a grammar may be lexemes of the matcher, so that it loses no text.

The matcher's lexer goes on with a lexeme while it can, and looks at one byte to tell: what would
have ended it before is lost. A part may be a lexeme if no text leaves a choice between going on in
it and anything else. Every single character may; of the parts that are regular, those are found
that may, as a long one costs the matcher less than its characters one by one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TypeAlias

from decoding.constraint.checks import groups
from decoding.constraint.gbnf_rules import (
    EMPTY,
    ROOT,
    Chars,
    Choice,
    Node,
    Range,
    Repeat,
    Rule,
    Sequence,
    named,
    read_rules,
)

_NOTHING = "(?:)"
"""A regular expression of the empty text."""

_MOST_STEPS = 300_000
"""Pairs of places that are looked at, in a tenth of a second."""


@dataclass(slots=True, eq=False)
class Part:
    """A part of a grammar where it stands. parent: what it stands in.

    is_regular: whether it names no rule that is written as such. is_split: whether a text leaves
    a choice within it. may_be_empty: whether it matches the empty text. first, last: characters
    and names of rules that it may begin and end with. bytes: those that its character may begin
    with, a bit for each.
    """

    node: Node
    parent: "Part | None"
    children: "list[Part]"
    is_regular: bool = True
    is_split: bool = False
    may_be_empty: bool = False
    first: "list[Part]" = field(default_factory=list["Part"])
    last: "list[Part]" = field(default_factory=list["Part"])
    bytes: int = 0

    @property
    def is_lexeme(self) -> bool:
        return self.is_regular and not self.is_split


_Place: TypeAlias = tuple[Part, Part | None]
"""A character that may come next, and the part within which it follows what came before."""

_Choices: TypeAlias = Collection[tuple[Part | None, Part | None]]
"""Parts within which the same text may go on, in the same byte."""


class Outline:
    """The parts of rules, each with whether it is a lexeme.

    written: rules by their names; others that they name stand in for their text. is_looked_at:
    whether parts of more than a character may be lexemes, which takes time.
    """

    def __init__(
        self, rules: Mapping[str, Node], written: Collection[str], *, is_looked_at: bool
    ) -> None:
        self._rules = rules
        self._written = written
        self._ends: list[Part] = []
        """Characters and names of rules."""
        self.parts = {name: self._part(rules[name], None) for name in written}
        if is_looked_at:
            self._split(self._choices() if len(written) > 1 or not self._root.is_regular else ())
        else:
            self._split([(one.parent, None) for one in self._ends])

    @property
    def _root(self) -> Part:
        return self.parts[ROOT]

    def _part(self, node: Node, parent: Part | None) -> Part:
        while isinstance(node, Rule) and node.name not in self._written:
            node = self._rules[node.name]
        part = Part(node, parent, [])
        match node:
            case Sequence(items) | Choice(items):
                part.children = [self._part(item, part) for item in items]
            case Repeat(item):
                part.children = [self._part(item, part)]
            case Chars() | Rule():
                self._ends.append(part)
        part.is_regular = not isinstance(node, Rule) and all(
            child.is_regular for child in part.children
        )
        return part

    def _split(self, choices: _Choices) -> None:
        """Mark the parts within which a text leaves a choice.

        What has ended, or never was a lexeme, is lost where another goes on. Those that go on
        together began together, and no text is lost as long as none of them ends.
        """
        is_new = True
        while is_new:
            is_new = False
            for one, other in choices:
                lexeme, beside = _lexeme(one), _lexeme(other)
                if (alone := lexeme or beside) and not (lexeme and beside):
                    alone.is_split = is_new = True

    def _choices(self) -> _Choices:
        following = _Following(self.parts, self._ends)
        steps = 0
        seen: set[tuple[Part, Part]] = set()
        found: set[tuple[Part | None, Part | None]] = set()
        start = following.entered((one, None) for one in self._root.first)
        waiting = [(start, start)]
        while waiting:
            ones, others = waiting.pop()
            steps += len(ones) * len(others)
            if steps > _MOST_STEPS:
                return [(one.parent, None) for one in self._ends]
            for (one, within), (other, beside) in product(ones, others):
                if one.bytes & other.bytes:
                    found.add((within, beside))
                    if (one, other) not in seen:
                        seen |= {(one, other), (other, one)}
                        waiting.append((following.after(one), following.after(other)))
        return found


class _Following:
    """What may follow what, wherever a rule is named."""

    def __init__(self, parts: Mapping[str, Part], ends: Iterable[Part]) -> None:
        self._parts = parts
        self._links: dict[Part, list[tuple[list[Part], Part]]] = {end: [] for end in ends}
        """What may follow each in the same rule, and within which part."""
        self._after: dict[Part, list[_Place]] = {}
        while sum(map(self._finds_empty, parts.values())):
            pass
        for part in parts.values():
            self._link(part)
        self._calls: dict[str, list[Part]] = {name: [] for name in parts}
        for end in self._links:
            if isinstance(end.node, Rule):
                self._calls[end.node.name].append(end)
        self._ended = {end: name for name, part in parts.items() for end in part.last}
        """The rules that may end with each."""

    def _finds_empty(self, part: Part) -> bool:
        """Mark what may be empty, as far as is known; whether that was news."""
        is_news = sum(map(self._finds_empty, part.children)) > 0
        match part.node:
            case Chars():
                is_empty = False
            case Rule(name):
                is_empty = self._parts[name].may_be_empty
            case Sequence():
                is_empty = all(child.may_be_empty for child in part.children)
            case Choice():
                is_empty = any(child.may_be_empty for child in part.children)
            case Repeat(_, least):
                is_empty = least == 0 or part.children[0].may_be_empty
        is_news = is_news or is_empty != part.may_be_empty
        part.may_be_empty = is_empty
        return is_news

    def _link(self, part: Part) -> None:
        """Fill in how a part begins and ends, and what may follow what within it."""
        for child in part.children:
            self._link(child)
        match part.node:
            case Chars(ranges):
                part.bytes = _first_bytes(ranges)
                part.first = part.last = [part]
            case Rule():
                part.first = part.last = [part]
            case Sequence():
                is_empty = True
                for child in part.children:
                    self._add(part.last, child.first, part)
                    part.first = part.first + child.first if is_empty else part.first
                    part.last = part.last + child.last if child.may_be_empty else child.last
                    is_empty = is_empty and child.may_be_empty
            case Choice():
                part.first = [one for child in part.children for one in child.first]
                part.last = [one for child in part.children for one in child.last]
            case Repeat(_, _, most):
                part.first, part.last = part.children[0].first, part.children[0].last
                if most != 1:
                    self._add(part.last, part.first, part)

    def _add(self, last: list[Part], first: list[Part], part: Part) -> None:
        for one in last:
            self._links[one].append((first, part))

    def after(self, part: Part) -> list[_Place]:
        """What may come next after a character."""
        if part not in self._after:
            ends = {part: None}
            waiting = [part]
            for end in waiting:
                calls = self._calls[self._ended[end]] if end in self._ended else []
                waiting += [call for call in calls if call not in ends]
                ends.update(dict.fromkeys(calls))
            self._after[part] = self.entered(place for end in ends for place in self._linked(end))
        return self._after[part]

    def _linked(self, end: Part) -> list[_Place]:
        return [(one, within) for first, within in self._links[end] for one in first]

    def entered(self, places: Iterable[_Place]) -> list[_Place]:
        """Places, with the beginnings of rules in place of their names."""
        found = dict.fromkeys(places)
        waiting = list(found)
        for part, within in waiting:
            if isinstance(part.node, Rule):
                more = [(one, within) for one in self._parts[part.node.name].first]
                more += self._linked(part) if part.may_be_empty else []
                new = [place for place in more if place not in found]
                found.update(dict.fromkeys(new))
                waiting += new
        return [place for place in found if isinstance(place[0].node, Chars)]


def _lexeme(part: Part | None) -> Part | None:
    found = None
    while part is not None:
        found = part if part.is_lexeme else found
        part = part.parent
    return found


def _first_bytes(ranges: Iterable[Range]) -> int:
    found = 0
    for first, last in ranges:
        low, high = chr(first).encode()[0], chr(last).encode()[0]
        found |= (2 << high) - (1 << low)
    return found


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
        match node:
            case Chars(ranges):
                listed = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in ranges)
                return f"[{listed}]" if listed else r"[^\x{0}-\x{10ffff}]"
            case Sequence(items):
                return "".join(map(self._expression, items)) or _NOTHING
            case Choice(items):
                texts = dict.fromkeys(map(self._expression, items))
                # The library panics on some alternatives of nothing.
                some = "|".join(text for text in texts if text != _NOTHING)
                return f"(?:{some}){'?' * (_NOTHING in texts)}" if some else _NOTHING
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
