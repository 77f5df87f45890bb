"""Reads GBNF as llama.cpp does (src/llama-grammar.cpp), into rules of characters."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from decoding.constraint.grammar import GrammarError

Range: TypeAlias = tuple[int, int]
"""Code points from the first to the last."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these ranges, which are ascending and apart."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Sequence:
    """All items, one after another; of none, the empty text."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    items: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """An item from least to most times; most: None for no limit."""

    item: "Node"
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Rule:
    name: str


Node: TypeAlias = Chars | Sequence | Choice | Repeat | Rule

ROOT = "root"
EMPTY = Sequence(())

_WRITABLE = ((0x01, 0xD7FF), (0xE000, 0x10FFFF))
"""What a text can hold. The end of a text is NUL to llama.cpp, so that it allows none in it."""

_MOST_TIMES = 2000
"""llama.cpp refuses more repetitions at least, and takes more at most for no limit."""

_MOST_KEPT = 1024
"""Characters that are made once."""

_BLANK = re.compile(r"(?:[ \t]|#[^\r\n]*)*")
_BLANK_LINES = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[a-zA-Z0-9-]+")
_NUMBER = re.compile(r"[0-9]+")
_END_OF_LINE = re.compile(r"\r\n?|\n|\Z")
_CODE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
_ESCAPED = {"t": "\t", "r": "\r", "n": "\n", **{sign: sign for sign in '\\"[]-'}}
_OFTEN = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def read_rules(text: str) -> Mapping[str, Node]:
    """The rules of a grammar by their names; the last one of a name counts.

    Raises:
        GrammarError: it cannot be read, or names tokens or rules that it does not have.
        RecursionError: it is nested too deeply.
    """
    return _Reader(text.partition("\0")[0]).rules()


def named(node: Node) -> set[str]:
    """Names of the rules that stand in a part of a grammar."""
    waiting, found = [node], set[str]()
    for one in waiting:
        match one:
            case Rule(name):
                found.add(name)
            case Sequence(items) | Choice(items):
                waiting += [item for item in items if not isinstance(item, Chars)]
            case Repeat(item):
                waiting.append(item)
            case Chars():
                pass
    return found


class _Reader:
    """Reads from a place on. nested: whether within parentheses, where lines may end anywhere."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def rules(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        self._skip(_BLANK_LINES)
        while self._sign():
            name = self._read(_NAME, "the name of a rule")
            self._skip(_BLANK)
            self._take("::=")
            self._skip(_BLANK_LINES)
            rules[name] = self._choice(nested=False)
            self._read(_END_OF_LINE, "the end of the line")
            self._skip(_BLANK_LINES)
        wanted = {ROOT}.union(*(named(node) for node in rules.values()))
        if missing := sorted(wanted - set(rules)):
            raise GrammarError("the GBNF grammar cannot be used", f'it has no rule "{missing[0]}"')
        return rules

    def _choice(self, *, nested: bool) -> Node:
        items = [self._sequence(nested=nested)]
        while self._sign() == "|":
            self._at += 1
            self._skip(_BLANK_LINES)
            items.append(self._sequence(nested=nested))
        return items[0] if len(items) == 1 else Choice(tuple(items))

    def _sequence(self, *, nested: bool) -> Node:
        items: list[Node] = []
        while sign := self._sign():
            if sign in "*+?{":
                least, most = self._times(nested=nested)
                if not items or items[-1] == EMPTY:
                    raise self._unreadable(f"nothing that {sign} could repeat")
                items[-1] = Repeat(items[-1], least, most) if most != 0 else EMPTY
            elif sign in '"[(.<!' or _NAME.match(sign):
                items.append(self._item(sign))
            else:
                break
            self._skip(_BLANK_LINES if nested else _BLANK)
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _item(self, sign: str) -> Node:
        match sign:
            case '"':
                self._at += 1
                return Sequence(tuple(map(_char, self._codes('"'))))
            case "[":
                return self._class()
            case "(":
                self._at += 1
                self._skip(_BLANK_LINES)
                item = self._choice(nested=True)
                self._take(")")
                return Sequence((item,)) if item == EMPTY else item  # a group can be repeated
            case ".":
                self._at += 1
                return Chars(_WRITABLE)
            case "<" | "!":
                raise self._unreadable("a token, which specchat does not know before its model")
            case _:
                return Rule(self._read(_NAME, "a name"))

    def _class(self) -> Node:
        self._at += 1
        if is_other := self._sign() == "^":
            self._at += 1
        ranges: list[Range] = []
        for code in self._codes("]"):
            ranges.append((code, code))
            if self._sign() == "-" and self._text[self._at + 1 : self._at + 2] != "]":
                self._at += 1
                ranges[-1] = (code, self._code())
        if not ranges:
            return EMPTY
        return _chars(_others(ranges) if is_other else ranges)

    def _codes(self, end: str) -> Iterator[int]:
        while self._sign() != end:
            yield self._code()
        self._at += 1

    def _code(self) -> int:
        """The code point of a character as it is written in a text or a class."""
        sign = self._sign()
        if not sign:
            raise self._unreadable("the end of the grammar within a text or a class")
        if found := _CODE.match(self._text, self._at):
            self._at = found.end()
            return int(found[found.lastindex or 0], 16)
        if sign != "\\":
            self._at += 1
            return ord(sign)
        escaped = self._text[self._at + 1 : self._at + 2]
        if escaped not in _ESCAPED:
            raise self._unreadable(f"an escape that GBNF does not have, \\{escaped}")
        self._at += 2
        return ord(_ESCAPED[escaped])

    def _times(self, *, nested: bool) -> tuple[int, int | None]:
        """How often what stands before is repeated."""
        blank = _BLANK_LINES if nested else _BLANK
        sign = self._sign()
        self._at += 1
        if sign in _OFTEN:
            return _OFTEN[sign]
        self._skip(blank)
        most: int | None
        least = most = int(self._read(_NUMBER, "a number"))
        self._skip(blank)
        if self._sign() == ",":
            self._at += 1
            self._skip(blank)
            most = None
            if _NUMBER.match(self._sign()):
                most = int(self._read(_NUMBER, "a number"))
                self._skip(blank)
        self._take("}")
        if least > _MOST_TIMES or (most is not None and most < least):
            raise self._unreadable(f"repetitions from {least} to {most}")
        return least, most if most is None or most <= _MOST_TIMES else None

    def _sign(self) -> str:
        """The next character; none at the end."""
        return self._text[self._at : self._at + 1]

    def _skip(self, blank: re.Pattern[str]) -> None:
        found = blank.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _read(self, wanted: re.Pattern[str], what: str) -> str:
        if (found := wanted.match(self._text, self._at)) is None:
            raise self._unreadable(f"{self._sign() or 'the end'} instead of {what}")
        self._at = found.end()
        return found[0]

    def _take(self, mark: str) -> None:
        self._read(re.compile(re.escape(mark)), mark)

    def _unreadable(self, why: str) -> GrammarError:
        line = self._text.count("\n", 0, self._at) + 1
        return GrammarError("the GBNF grammar cannot be read", f"line {line} has {why}")


@lru_cache(_MOST_KEPT)
def _char(code: int) -> Chars:
    return _chars([(code, code)])


def _chars(ranges: Iterable[Range]) -> Chars:
    """Those characters of any ranges that a text can hold."""
    parts = sorted(
        (max(first, low), min(last, high))
        for first, last in ranges
        for low, high in _WRITABLE
        if max(first, low) <= min(last, high)
    )
    apart: list[Range] = []
    for first, last in parts:
        if apart and first <= apart[-1][1] + 1:
            apart[-1] = (apart[-1][0], max(last, apart[-1][1]))
        else:
            apart.append((first, last))
    return Chars(tuple(apart))


def _others(ranges: Iterable[Range]) -> Iterator[Range]:
    """What lies between ranges, below and above them."""
    edges = [(0, 0), *_chars(ranges).ranges, (0x110000, 0x110000)]
    for (_, last), (first, _) in pairwise(edges):
        yield last + 1, first - 1
