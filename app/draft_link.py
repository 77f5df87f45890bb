"""One drafter of a chain, as `--draft` asks for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from models.reference import HubReference, Reference
from models.self_draft.recipe import Recipe


class LinkKind(StrEnum):
    """What a link of a chain is; a word of --draft, but for a model, which goes by its own name."""

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


LOOKUP, SELF = LinkKind.LOOKUP.value, LinkKind.SELF.value
RETRIEVAL, NGRAM = LinkKind.RETRIEVAL.value, LinkKind.NGRAM.value
JACOBI, LOOKAHEAD = LinkKind.JACOBI.value, LinkKind.LOOKAHEAD.value

MODELS = frozenset({LinkKind.SELF, LinkKind.MODEL})
"""Those that are one model of their own."""


@dataclass(frozen=True, slots=True)
class Link:
    """One drafter of a chain. name: as --draft spells it.

    recipe: of a self-drafter, None for the default one. reference: of a model. parts: the drafters
    that it is made of. settings: what follows its colon, unread.
    """

    kind: LinkKind
    name: str
    recipe: Recipe | None = None
    reference: Reference | HubReference | None = None
    parts: "tuple[Link, ...]" = ()
    settings: str = ""

    @property
    def known_as(self) -> str:
        """What the user knows a drafter model by."""
        if self.reference is None:
            return "the self-drafter"
        return Path(self.reference.name).name.removesuffix(".gguf")

    @property
    def models(self) -> "Iterator[str]":
        """The names of the drafter models that it takes, its parts' too."""
        if self.kind in MODELS:
            yield self.name
        for part in self.parts:
            yield from part.models

    @property
    def recipes(self) -> "Iterator[Recipe]":
        """How self-drafters that are spelled out are made, its parts' too."""
        if self.recipe is not None:
            yield self.recipe
        for part in self.parts:
            yield from part.recipes

    @property
    def references(self) -> "Iterator[Reference | HubReference]":
        """The models that it takes, its parts' too."""
        if self.reference is not None:
            yield self.reference
        for part in self.parts:
            yield from part.references
