"""What is known of a drafter for a target, before and after it was measured."""

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from app.drafting.drafter_spec import Composition
from app.drafting.gain import CostSource
from app.learned.tuned_recipe import Tuned
from backends.base import Model
from backends.engines.backend_selection import AUTO
from decoding.estimation.cost import TreeSize
from models.metadata.memory_bill import Fit, ModelFacts
from models.reference import HubReference, Reference
from models.self_draft.recipe import Recipe


class Kind(StrEnum):
    """How a drafter relates to its target."""

    LOOKUP = "prompt lookup"
    RETRIEVAL = "earlier chats"
    NGRAM = "learned n-grams"
    GUESSES = "the model's own guesses"
    SELF = "self"
    SAME_VOCABULARY = "same vocabulary"
    ACROSS_VOCABULARIES = "across vocabularies"
    TRAINED = "trained for one model"
    COMPOSED = "made of others"


class AcceptanceSource(StrEnum):
    """Whether drafts were judged, or a trial estimated them."""

    JUDGED = "judged"
    TRIAL = "trial"


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """A drafter, by its name in --draft, for a target. What is unknown is None."""

    name: str
    kind: Kind | None
    is_compatible: bool | None
    why: str
    """What it is, or why it cannot draft, in words."""
    path: Path | None = None
    facts: ModelFacts | None = None
    read_bytes: int | None = None
    """Weights read per token."""
    shared: float | None = None
    """Share of its tokens that the target has too."""
    variant: str = ""
    """How it is derived from the weights at path, "" if it is those weights."""
    tuned: Tuned | None = None
    tree: TreeSize | None = None
    """Size of its drafts, None for lines."""
    recipe: Recipe | None = None
    """How it is made from the target."""
    prior: float | None = None
    """Expected acceptance of its kind."""
    doubt: str = ""
    """Why it is not expected to pay, in words; "" if it may."""
    longest: int = 0
    """Tokens of its blocks, 0 if it drafts token by token."""
    composition: Composition | None = None
    memory_bytes: int | None = None
    """Weights and context."""
    fit: Fit | None = None
    draw_cost: float | None = None
    """Of one drafted token, in plain steps of the target."""
    start_cost: float = 0.0
    """Of a draft whatever its length, as of one that is a block."""
    cost_source: CostSource | None = None
    acceptance: float | None = None
    is_trial: bool = False
    """Whether its acceptance is estimated by a trial, as no draft was verified yet."""
    judged: float = 0.0
    """Drafted tokens that its acceptance rests on."""
    speedup: float | None = None
    break_even: float | None = None
    """Acceptance from which drafting pays, infinite if it never does."""

    def refused(self, why: str) -> "DrafterInfo":
        """It cannot draft for the target."""
        return replace(self, is_compatible=False, why=why)

    @property
    def is_free(self) -> bool:
        """Whether it takes neither a model nor measurable time."""
        return self.kind in (Kind.LOOKUP, Kind.RETRIEVAL, Kind.NGRAM)

    @property
    def needs_no_model(self) -> bool:
        """Whether it needs no model but the target."""
        return self.is_free or self.kind is Kind.GUESSES

    @property
    def is_installed(self) -> bool:
        return self.needs_no_model or self.path is not None

    @property
    def block_cost(self) -> float:
        """Cost of its longest block, in plain steps; 0 if it drafts token by token."""
        return self.start_cost + self.longest * (self.draw_cost or 0.0)

    @property
    def acceptance_source(self) -> AcceptanceSource | None:
        if self.acceptance is None:
            return None
        return AcceptanceSource.TRIAL if self.is_trial else AcceptanceSource.JUDGED


@dataclass(frozen=True, slots=True)
class Target:
    """The model to draft for, loaded if it is installed."""

    reference: Reference | HubReference
    facts: ModelFacts | None
    model: Model | None = None
    backend: str = AUTO
    """The requested backend."""
    tree_refusal: str = ""
    """Why it cannot verify trees, in words after its name; "" if it can, or is not loaded."""

    @property
    def path(self) -> Path | None:
        """Its file; None if it is not installed."""
        return self.model.info.path if self.model else None


@dataclass(frozen=True, slots=True)
class Ranking:
    """Drafters for a target, best first.

    plain_seconds: duration of a plain step, None if unmeasured. spread: relative disagreement
    between timings of the target's passes, above 0 if the machine was busy; figures are as
    uncertain.
    """

    target: str
    is_installed: bool
    plain_seconds: float | None
    drafters: tuple[DrafterInfo, ...]
    spread: float = 0.0
