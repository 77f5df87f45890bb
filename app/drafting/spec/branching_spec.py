"""Parses the settings of tree and paths drafters."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from backends.base import UsageError


class Children(StrEnum):
    """How the children of a tree's node are chosen."""

    LIKELIEST = "likeliest"
    DRAWN = "drawn"


_TREE_EXAMPLE = "Example: --draft 'tree(self):nodes=6,depth=3'"
_PATHS_EXAMPLE = "Example: --draft 'paths(self):k=2,length=3'"


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """Size of a tree, and how its tokens are chosen.

    children: None for the likeliest at temperature 0 and drawn ones above.
    """

    nodes: int = 6
    depth: int = 3
    children: Children | None = None

    @staticmethod
    def parse(text: str) -> "TreeSettings":
        """Parse nodes=6,depth=3,children=drawn; each is optional.

        Raises:
            UsageError: a setting is unknown, out of range, or contradicts another.
        """
        numbers = {"nodes": (1, 64), "depth": (1, 16)}
        read = _Read("tree", text, _TREE_EXAMPLE)
        words = read.words(numbers, {"children": tuple(Children)})
        children = Children(words["children"]) if "children" in words else None
        tree = TreeSettings(children=children, **read.numbers(words, numbers))
        if tree.depth > tree.nodes:
            raise read.refused("a tree is no deeper than it has nodes")
        return tree


@dataclass(frozen=True, slots=True)
class PathsSettings:
    """Number of paths drawn, and tokens of each."""

    k: int = 2
    length: int = 3

    @staticmethod
    def parse(text: str) -> "PathsSettings":
        """Parse k=2,length=3; each is optional.

        Raises:
            UsageError: a setting is unknown or out of range.
        """
        numbers = {"k": (2, 16), "length": (1, 16)}
        read = _Read("paths", text, _PATHS_EXAMPLE)
        return PathsSettings(**read.numbers(read.words(numbers, {}), numbers))


@dataclass(frozen=True, slots=True)
class _Read:
    """The settings of one drafter as typed."""

    kind: str
    text: str
    example: str

    def words(
        self, numbers: Mapping[str, tuple[int, int]], choices: Mapping[str, tuple[str, ...]]
    ) -> dict[str, str]:
        """Value of each setting given, at most once."""
        given: dict[str, str] = {}
        for part in filter(None, self.text.split(",")):
            name, _, value = (word.strip() for word in part.partition("="))
            is_number = name in numbers and re.fullmatch(r"\d{1,3}", value)
            if name in given or not (is_number or value in choices.get(name, ())):
                known = [f"{key}=N" for key in numbers]
                known += [f"{key}={'|'.join(values)}" for key, values in choices.items()]
                raise self.refused(f"{part.strip()!r} is not one of {', '.join(known)}, each once")
            given[name] = value
        return given

    def numbers(
        self, words: Mapping[str, str], numbers: Mapping[str, tuple[int, int]]
    ) -> dict[str, int]:
        """Values of the numeric settings."""
        given = {name: int(words[name]) for name in numbers if name in words}
        for name, value in given.items():
            least, most = numbers[name]
            if not least <= value <= most:
                raise self.refused(f"{name} is {least} to {most}")
        return given

    def refused(self, why: str) -> UsageError:
        """The error for invalid settings."""
        return UsageError(f"{self.kind}(...):{self.text} cannot be", why, self.example)
