"""A reply as it is generated."""

import time
from dataclasses import dataclass, field

from decoding.events import FinishReason
from decoding.sampling.lossy_rule import LossyRule
from decoding.telemetry import Statistics


@dataclass(slots=True)
class Reply:
    """A reply as it is generated; complete once finish_reason is set."""

    statistics: Statistics
    text: str = ""
    token_ids: list[int] = field(default_factory=list[int])
    provenance: list[str] = field(default_factory=list[str])
    """Source of each token: a drafter's name or an Origin."""
    finish_reason: FinishReason | None = None
    joules: float | None = None
    """Energy used for decoding, where the machine can measure it."""
    rule: LossyRule | None = None
    """Lossy rule that its drafts are verified by."""

    @property
    def lossy(self) -> LossyRule | None:
        """The lossy rule if tokens may depend on it; a reply with nothing drafted is lossless."""
        return self.rule if self.statistics.drafted else None


def new_reply() -> Reply:
    """An empty reply whose clock starts now."""
    return Reply(Statistics(time.perf_counter()))
