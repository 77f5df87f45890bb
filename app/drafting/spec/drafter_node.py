"""One drafter of a `--draft` list, parsed."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

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
        """Name of the drafter's model in messages."""
        if self.kind in HEADS:
            return self.kind.value
        if self.reference is None:
            return "the self-drafter"
        return Path(self.reference.name).name.removesuffix(".gguf")

    @property
    def models(self) -> Iterator[str]:
        """Names of the drafter models, including those of its parts."""
        if self.kind in MODELS:
            yield self.name
        for part in self.parts:
            yield from part.models

    @property
    def recipes(self) -> Iterator[Recipe]:
        """Recipes of self-drafters, including those of its parts."""
        if self.recipe is not None:
            yield self.recipe
        for part in self.parts:
            yield from part.recipes

    @property
    def self_drafters(self) -> Iterator["DrafterNode"]:
        """Self-drafters, including those of its parts."""
        if self.kind is NodeKind.SELF:
            yield self
        for part in self.parts:
            yield from part.self_drafters

    @property
    def references(self) -> Iterator[Reference | HubReference]:
        """References of the models, including those of its parts."""
        if self.reference is not None:
            yield self.reference
        for part in self.parts:
            yield from part.references
