"""What is known of a drafter for a target, before and after it was measured."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from app.drafting.drafter_node import Composition
from app.learned.tuned_recipe import Tuned
from backends.base import Model
from backends.engines.backend_selection import AUTO
from decoding.estimation.cost import BUSY, TreeSize
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

    @property
    def is_free(self) -> bool:
        """Whether it takes neither a model nor measurable time."""
        return self in (Kind.LOOKUP, Kind.RETRIEVAL, Kind.NGRAM)

    @property
    def needs_no_model(self) -> bool:
        """Whether it needs no model but the target."""
        return self.is_free or self is Kind.GUESSES


@dataclass(frozen=True, slots=True)
class Candidate:
    """A drafter before it is run, by its name in --draft; facts not known yet are None.

    why: what it is, or why it cannot draft, in words. shared: share of its tokens that the target
    has too. read_bytes: weights read per token. variant: how it is derived from the weights at
    path, "" if it is those weights. tuned: results of tuning. tree: size of its drafts, None for
    lines. recipe: how it is made from the target. prior: expected acceptance of its kind. doubt:
    why it is not expected to pay, in words; "" if it may.
    longest: tokens of its blocks, 0 if it drafts token by token. composition: how it is composed of
    other drafters, None if it is not.
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
    longest: int = 0
    composition: Composition | None = None

    @property
    def is_free(self) -> bool:
        """Whether it takes neither a model nor measurable time."""
        return self.kind is not None and self.kind.is_free

    @property
    def needs_no_model(self) -> bool:
        """Whether it needs no model but the target."""
        return self.kind is not None and self.kind.needs_no_model


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


class AcceptanceSource(StrEnum):
    """Source of a pair's acceptance."""

    JUDGED = "judged"
    TRIAL = "trial"


class CostSource(StrEnum):
    """Source of a drafter's cost per token."""

    FREE = "free"
    MEASURED = "measured"
    BUSY = BUSY
    SIZE = "expected from size"


@dataclass(frozen=True, slots=True)
class Pair:
    """A drafter with a target; unknown figures are None.

    memory_bytes: weights and context. draw_cost: of one drafted token, in plain steps of the
    target; start_cost: of a draft whatever its length, as of one that is a block. acceptance: of
    this pair; is_trial: estimated by a trial, as no draft was verified yet. judged: drafted tokens
    that the acceptance rests on. break_even: the acceptance from which drafting pays, infinite if
    it never does.
    """

    drafter: Candidate
    is_installed: bool
    memory_bytes: int | None = None
    fit: Fit | None = None
    draw_cost: float | None = None
    start_cost: float = 0.0
    cost_source: CostSource | None = None
    acceptance: float | None = None
    is_trial: bool = False
    judged: float = 0.0
    speedup: float | None = None
    break_even: float | None = None

    @property
    def block_cost(self) -> float:
        """Cost of its longest block, in plain steps; 0 if it drafts token by token."""
        return self.start_cost + self.drafter.longest * (self.draw_cost or 0.0)

    @property
    def acceptance_source(self) -> AcceptanceSource | None:
        """Source of the acceptance; None if it is unknown."""
        if self.acceptance is None:
            return None
        return AcceptanceSource.TRIAL if self.is_trial else AcceptanceSource.JUDGED


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
    pairs: tuple[Pair, ...]
    spread: float = 0.0
