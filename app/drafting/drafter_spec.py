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
    HYDRA = "hydra"


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
class DrafterSpec:
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
    parts: "tuple[DrafterSpec, ...]" = ()
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
    def all(self) -> Iterator["DrafterSpec"]:
        """This drafter and, recursively, its parts."""
        yield self
        for part in self.parts:
            yield from part.all

    @property
    def models(self) -> Iterator[str]:
        return (node.name for node in self.all if node.kind in MODELS)

    @property
    def self_drafters(self) -> Iterator["DrafterSpec"]:
        return (node for node in self.all if node.kind is NodeKind.SELF)

    @property
    def references(self) -> Iterator[Reference | HubReference]:
        return (node.reference for node in self.all if node.reference is not None)


class Children(StrEnum):
    LIKELIEST = "likeliest"
    DRAWN = "drawn"


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
        numbers = {"nodes": range(1, 65), "depth": range(1, 17)}
        given, words = _settings(NodeKind.TREE, text, numbers, {"children": tuple(Children)})
        children = Children(words["children"]) if words else None
        tree = TreeSettings(children=children, **given)
        if tree.depth > tree.nodes:
            raise _refused(NodeKind.TREE, text, "a tree is no deeper than it has nodes")
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
        numbers = {"k": range(2, 17), "length": range(1, 17)}
        return PathsSettings(**_settings(NodeKind.PATHS, text, numbers, {})[0])


_EXAMPLES = {
    NodeKind.TREE: "Example: --draft 'tree(self):nodes=6,depth=3'",
    NodeKind.PATHS: "Example: --draft 'paths(self):k=2,length=3'",
}


def _settings(
    kind: NodeKind, text: str, numbers: Mapping[str, range], choices: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, int], dict[str, str]]:
    """Numbers and words that are given, each at most once."""
    found: dict[str, int] = {}
    words: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, _, value = (word.strip() for word in part.partition("="))
        is_new = name not in found and name not in words
        if is_new and name in numbers and re.fullmatch(r"\d{1,3}", value):
            found[name] = int(value)
        elif is_new and value in choices.get(name, ()):
            words[name] = value
        else:
            known = [f"{key}=N" for key in numbers]
            known += [f"{key}={'|'.join(values)}" for key, values in choices.items()]
            why = f"{part.strip()!r} is not one of {', '.join(known)}, each once"
            raise _refused(kind, text, why)
    for name, value in found.items():
        if value not in numbers[name]:
            why = f"{name} is {numbers[name][0]} to {numbers[name][-1]}"
            raise _refused(kind, text, why)
    return found, words


def _refused(kind: NodeKind, text: str, why: str) -> UsageError:
    return UsageError(f"{kind}(...):{text} is not possible", why, _EXAMPLES[kind])


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
