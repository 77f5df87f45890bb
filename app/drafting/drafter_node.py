"""One drafter of a `--draft` list, parsed, with the settings of trees and paths."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from backends.base import UsageError
from backends.files.gguf_drafter import TrainedKind
from models.reference import HubReference, Reference
from models.self_draft.recipe import Recipe


class NodeKind(StrEnum):
    """Kind of a drafter; its word in --draft, except for a model, which is named."""

    LOOKUP = "lookup"
    RETRIEVAL = "retrieval"
    NGRAM = "ngram"
    JACOBI = "jacobi"
    LOOKAHEAD = "lookahead"
    SELF = "self"
    MODEL = "model"
    CASCADE = "cascade"
    VOTE = "vote"
    TREE = "tree"
    PATHS = "paths"
    MTP = "mtp"
    EAGLE3 = "eagle3"
    DFLASH = "dflash"
    DSPARK = "dspark"
    ASSISTANT = "assistant"


LOOKUP, SELF = NodeKind.LOOKUP.value, NodeKind.SELF.value
RETRIEVAL, NGRAM = NodeKind.RETRIEVAL.value, NodeKind.NGRAM.value
JACOBI, LOOKAHEAD = NodeKind.JACOBI.value, NodeKind.LOOKAHEAD.value

ON_PROCESSOR = "cpu"
"""Stands before the name of a model that drafts on the processor, wherever the target runs."""

HEADS = {NodeKind(kind.word): kind for kind in TrainedKind}
"""Words of drafters that were trained for one model."""

MODELS = frozenset({NodeKind.SELF, NodeKind.MODEL, *HEADS})
"""Drafters that consist of one model."""


@dataclass(frozen=True, slots=True)
class DrafterNode:
    """One drafter of a --draft list; name: its normalized text.

    recipe: of a self-drafter, None for the default. reference: of a model; of a head that is asked
    for by its word alone, what is known before the target is here. parts: the drafters it is
    composed of. settings: the text after its colon. on_processor: whether a model runs on the
    processor, wherever the target does.
    """

    kind: NodeKind
    name: str
    recipe: Recipe | None = None
    reference: Reference | HubReference | None = None
    parts: "tuple[DrafterNode, ...]" = ()
    settings: str = ""
    on_processor: bool = False

    @property
    def known_as(self) -> str:
        if self.kind in HEADS:
            return self.kind.value
        if self.reference is None:
            return "the self-drafter"
        return Path(self.reference.name).name.removesuffix(".gguf")

    @property
    def models(self) -> Iterator[str]:
        if self.kind in MODELS:
            yield self.name
        for part in self.parts:
            yield from part.models

    @property
    def recipes(self) -> Iterator[Recipe]:
        if self.recipe is not None:
            yield self.recipe
        for part in self.parts:
            yield from part.recipes

    @property
    def self_drafters(self) -> Iterator["DrafterNode"]:
        if self.kind is NodeKind.SELF:
            yield self
        for part in self.parts:
            yield from part.self_drafters

    @property
    def references(self) -> Iterator[Reference | HubReference]:
        if self.reference is not None:
            yield self.reference
        for part in self.parts:
            yield from part.references


class Children(StrEnum):
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
        given = {name: int(words[name]) for name in numbers if name in words}
        for name, value in given.items():
            least, most = numbers[name]
            if not least <= value <= most:
                raise self.refused(f"{name} is {least} to {most}")
        return given

    def refused(self, why: str) -> UsageError:
        return UsageError(f"{self.kind}(...):{self.text} cannot be", why, self.example)


def composed(kind: NodeKind, parts: Iterable[str], settings: str = "") -> str:
    """Combine the ids of parts to an id, or their names to a name."""
    return f"{kind}({','.join(parts)})" + (f":{settings}" if settings else "")


@dataclass(frozen=True, slots=True)
class Composition:
    """A composed drafter of parts without a model, followed by one drafter model."""

    kind: NodeKind
    before: tuple[str, ...] = ()

    def of(self, model: str) -> str:
        """Return its id given the model's id, or its name given the model's name."""
        return composed(self.kind, (*self.before, model))
