"""Reads the settings of drafters that look along several branches of their model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from backends.base import UsageError


class Children(StrEnum):
    """Which tokens of its model a tree has below a node."""

    LIKELIEST = "likeliest"
    DRAWN = "drawn"


_TREE_EXAMPLE = "Example: --draft 'tree(self):nodes=6,depth=3'"
_PATHS_EXAMPLE = "Example: --draft 'paths(self):k=2,length=3'"


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """Tokens of a tree in all and in a row, and how they are found.

    children: None for the likeliest at temperature 0, and drawn ones above.
    """

    nodes: int = 6
    depth: int = 3
    children: Children | None = None

    @staticmethod
    def parse(text: str) -> "TreeSettings":
        """Read nodes=6,depth=3,children=drawn, any of which may be left out.

        Raises:
            UsageError: it is something else, or cannot be.
        """
        numbers = {"nodes": (1, 64), "depth": (1, 16)}
        read = _Read("tree", text, _TREE_EXAMPLE)
        words = read.words(numbers, {"children": tuple(Children)})
        children = Children(words["children"]) if "children" in words else None
        found = TreeSettings(children=children, **read.numbers(words, numbers))
        if found.depth > found.nodes:
            raise read.refused("a tree is no deeper than it has nodes")
        return found


@dataclass(frozen=True, slots=True)
class PathsSettings:
    """Lines that are drawn, and tokens of each."""

    k: int = 2
    length: int = 3

    @staticmethod
    def parse(text: str) -> "PathsSettings":
        """Read k=2,length=3, any of which may be left out.

        Raises:
            UsageError: it is something else.
        """
        numbers = {"k": (2, 16), "length": (1, 16)}
        read = _Read("paths", text, _PATHS_EXAMPLE)
        return PathsSettings(**read.numbers(read.words(numbers, {}), numbers))


@dataclass(frozen=True, slots=True)
class _Read:
    """The settings of one drafter, as they were typed."""

    kind: str
    text: str
    example: str

    def words(
        self, numbers: Mapping[str, tuple[int, int]], choices: Mapping[str, tuple[str, ...]]
    ) -> dict[str, str]:
        """The value of each name that is there, once at most."""
        found: dict[str, str] = {}
        for part in filter(None, self.text.split(",")):
            name, _, value = (word.strip() for word in part.partition("="))
            is_number = name in numbers and re.fullmatch(r"\d{1,3}", value)
            if name in found or not (is_number or value in choices.get(name, ())):
                one_of = [f"{one}=N" for one in numbers]
                one_of += [f"{one}={'|'.join(values)}" for one, values in choices.items()]
                raise self.refused(f"{part.strip()!r} is not one of {', '.join(one_of)}, each once")
            found[name] = value
        return found

    def numbers(
        self, words: Mapping[str, str], numbers: Mapping[str, tuple[int, int]]
    ) -> dict[str, int]:
        """Those of the words that are numbers."""
        found = {name: int(words[name]) for name in numbers if name in words}
        for name, value in found.items():
            least, most = numbers[name]
            if not least <= value <= most:
                raise self.refused(f"{name} is {least} to {most}")
        return found

    def refused(self, why: str) -> UsageError:
        """What is wrong with them."""
        return UsageError(f"{self.kind}(...):{self.text} cannot be", why, self.example)
