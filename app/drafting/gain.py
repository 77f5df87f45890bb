"""What drafting with a drafter is expected to gain, and whether that pays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from decoding.draft import MOST_DRAFTED
from decoding.estimation.acceptance import ANY_POSITION, Acceptance, is_lossless
from decoding.estimation.cost import BUSY, CostModel, DraftCost, DraftCosts
from decoding.estimation.draft_cost import BlockCost
from decoding.planning.draft_length import predicted_speedup
from decoding.planning.managed_drafter import ManagedDrafter

WORTHWHILE = 1.1
"""Predicted speedup from which a drafter is worth its memory."""

_CLOSE = 0.15
"""Relative distance from that within which a trial on one prompt does not tell: the mean overlap of
some seven tokens has a standard error of about 0.1, or 15 % of a speedup."""


class CostSource(StrEnum):
    """How a cost is known, in words."""

    FREE = "free"
    MEASURED = "measured"
    BUSY = BUSY
    SIZE = "expected from size"


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a drafted token, and of a draft whatever its length, in plain steps.

    longest: most tokens of a draft.
    """

    draw: float
    start: float = 0.0
    longest: int = MOST_DRAFTED
    source: CostSource = CostSource.MEASURED

    @classmethod
    def of(cls, measured: DraftCost, plain_seconds: float) -> Self:
        longest = measured.longest if isinstance(measured, BlockCost) else MOST_DRAFTED
        source = CostSource.MEASURED if measured.is_steady else CostSource.BUSY
        draw, begin = measured.draw_seconds, measured.begin_seconds
        return cls(draw / plain_seconds, begin / plain_seconds, longest, source)


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Costs of verifying a draft by a function of its length, beyond a plain step."""

    extra: Callable[[int], float]
    largest: int = 1 + MOST_DRAFTED

    def of_draft(self, drafted: int) -> float:
        return self.extra(drafted)


def expected_gain(costs: DraftCosts, cost: Cost, acceptance: float) -> float:
    """Predicted speedup over plain decoding; costs: of the target's passes."""
    return predicted_speedup(lambda _: acceptance, costs, cost.draw, cost.longest, cost.start)


def pays(member: ManagedDrafter, costs: CostModel) -> bool:
    """Whether a drafter is expected to pay, by its measured cost and acceptance."""
    return member.cost is None or _gain(member, costs, member.cost) >= WORTHWHILE


def is_close(member: ManagedDrafter, costs: CostModel) -> bool:
    """Whether it is close to whether a drafter pays."""
    if member.cost is None:
        return False
    return abs(_gain(member, costs, member.cost) / WORTHWHILE - 1.0) < _CLOSE


def _gain(member: ManagedDrafter, costs: CostModel, cost: DraftCost) -> float:
    share = share_of(member.estimates.acceptance)
    expected = member.estimates.prior if share is None else share
    return expected_gain(member.costs(costs), Cost.of(cost, costs.seconds(1)), expected)


def share_of(known: Acceptance) -> float | None:
    """Acceptance at all temperatures; None if nothing was judged."""
    accepted, judged = judged_of(known)
    return accepted / judged if judged else None


def judged_of(known: Acceptance, *, is_free: bool = False) -> tuple[float, float]:
    """Accepted and judged tokens at all temperatures, each once: counts by kind of text repeat it.

    is_free: whether the drafter has a class for each kind of evidence.
    """
    counts = [
        count
        for key, count in known.counts().items()
        if (key.count(":") == 1 if is_free else key.endswith(f":{ANY_POSITION}"))
        and is_lossless(key)
    ]
    return sum(count[0] for count in counts), sum(count[1] for count in counts)


def together(trials: Sequence[Acceptance]) -> Acceptance:
    """Trials on several prompts as one."""
    counts: dict[str, tuple[float, float]] = {}
    for trial in trials:
        for key, (accepted, judged) in trial.counts().items():
            before = counts.get(key, (0.0, 0.0))
            counts[key] = before[0] + accepted, before[1] + judged
    return Acceptance(counts, is_trial=True)
