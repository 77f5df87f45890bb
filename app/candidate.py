"""A drafter that could be chosen for a target, with what is known before it is run."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app.drafter_id import Composition
from app.tuned_recipe import Tuned
from backends.base import Model
from backends.engines.backend_names import AUTO
from decoding.cost import TreeSize
from models.metadata.model_facts import ModelFacts
from models.reference import HubReference, Reference
from models.self_draft.recipe import Recipe


class Kind(StrEnum):
    """What a drafter is to its target."""

    LOOKUP = "prompt lookup"
    RETRIEVAL = "earlier chats"
    NGRAM = "learned n-grams"
    GUESSES = "the model's own guesses"
    SELF = "self"
    SAME_VOCABULARY = "same vocabulary"
    ACROSS_VOCABULARIES = "across vocabularies"
    NEXT_TOKEN_LAYERS = "next-token layers"
    COMPOSED = "made of others"

    @property
    def is_free(self) -> bool:
        """Whether it takes neither a model nor time of its own, and is often silent."""
        return self in (Kind.LOOKUP, Kind.RETRIEVAL, Kind.NGRAM)

    @property
    def needs_no_model(self) -> bool:
        """Whether all that it takes is the target."""
        return self.is_free or self is Kind.GUESSES


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drafter by the name that --draft takes. None where something is not known yet.

    why: in words, what it is, or why it cannot draft. shared: the share of its tokens that the
    target has too. read_bytes: weights that one of its tokens reads. variant: how it is made of the
    weights at path, "" where it is those. tuned: what tuning measured of it. tree: the size of what
    it proposes, None for lines. recipe: how the target itself becomes it. prior: the acceptance
    expected of its kind. doubt: why none is expected to pay, in words; "" where one may.
    composition: how it is made of others, None where it is not.
    """

    name: str
    kind: Kind | None
    is_compatible: bool | None
    why: str
    path: Path | None = None
    facts: ModelFacts | None = None
    read_bytes: int | None = None
    shared: float | None = None
    variant: str = ""
    tuned: Tuned | None = None
    tree: TreeSize | None = None
    recipe: Recipe | None = None
    prior: float | None = None
    doubt: str = ""
    composition: Composition | None = None

    @property
    def is_free(self) -> bool:
        """Whether it takes no time of its own, and no model."""
        return self.kind is not None and self.kind.is_free

    @property
    def needs_no_model(self) -> bool:
        """Whether all that it takes is the target."""
        return self.kind is not None and self.kind.needs_no_model


@dataclass(frozen=True, slots=True)
class Target:
    """The model to draft for, loaded where it is on this machine."""

    reference: Reference | HubReference
    facts: ModelFacts | None
    model: Model | None = None
    backend: str = AUTO
    """The one that is asked for."""
    tree_refusal: str = ""
    """Why it cannot run branches, in words after its name; "" where it can, or is not loaded."""

    @property
    def path(self) -> Path | None:
        """Its file, None where it is not on this machine."""
        return self.model.info.path if self.model else None
