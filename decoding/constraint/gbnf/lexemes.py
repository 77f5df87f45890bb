"""Which parts of a grammar may be lexemes of the matcher, so that it loses no text.

The matcher's lexer goes on with a lexeme while it can, and looks at one byte to tell: what would
have ended it before is lost. A part may be a lexeme if no text leaves a choice between going on in
it and anything else. Every single character may; of the parts that are regular, those are found
that may, as a long one costs the matcher less than its characters one by one.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TypeAlias

from decoding.constraint.gbnf.rules import ROOT, Chars, Choice, Node, Range, Repeat, Rule, Sequence

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
    """The largest lexeme that a part stands in."""
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
