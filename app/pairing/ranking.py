"""A ranking of drafters for a target, with all known figures."""

from dataclasses import dataclass
from enum import StrEnum

from app.pairing.candidate import Candidate
from decoding.estimation.cost import BUSY
from models.metadata.memory_bill import Fit


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
