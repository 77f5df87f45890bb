"""Drafters for a target, ranked, with what is known of each."""

from dataclasses import dataclass
from enum import StrEnum

from app.candidate import Candidate
from decoding.cost import BUSY
from models.metadata.memory_bill import Fit


class AcceptanceSource(StrEnum):
    """How the acceptance of a pair is known."""

    JUDGED = "judged"
    TRIAL = "trial"


class CostSource(StrEnum):
    """How the cost of a drafter's token is known."""

    FREE = "free"
    MEASURED = "measured"
    BUSY = BUSY
    SIZE = "expected from size"


@dataclass(frozen=True, slots=True)
class Pair:
    """A drafter beside a target. None where a figure was not measured, or is not known.

    memory_bytes: with its context. draw_cost: of one of its tokens, in plain steps of the target.
    acceptance: remembered of this pair; is_trial: expected by a trial, as none of its tokens was
    judged yet. break_even: the acceptance from which it pays, infinite
    where none does.
    """

    drafter: Candidate
    is_installed: bool
    memory_bytes: int | None = None
    fit: Fit | None = None
    draw_cost: float | None = None
    cost_source: CostSource | None = None
    acceptance: float | None = None
    is_trial: bool = False
    speedup: float | None = None
    break_even: float | None = None

    @property
    def acceptance_source(self) -> AcceptanceSource | None:
        """None where no acceptance is known."""
        if self.acceptance is None:
            return None
        return AcceptanceSource.TRIAL if self.is_trial else AcceptanceSource.JUDGED


@dataclass(frozen=True, slots=True)
class Ranking:
    """Drafters for a target, the best first.

    plain_seconds: of a plain step, None if unmeasured. spread: the share by which timings of the
    target's passes disagree, above 0 where the machine was busy; figures may be as far off.
    """

    target: str
    is_installed: bool
    plain_seconds: float | None
    pairs: tuple[Pair, ...]
    spread: float = 0.0
