"""A reply as it grows."""

import time
from dataclasses import dataclass, field

from decoding.events import FinishReason
from decoding.lossy_rule import LossyRule
from decoding.telemetry import Statistics


@dataclass(slots=True)
class Reply:
    """A reply as it grows; complete once finish_reason is set."""

    statistics: Statistics
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    joules: float | None = None
    """Energy of decoding, where the machine tells it."""
    rule: LossyRule | None = None
    """The lossy rule that its drafts are judged by."""

    @property
    def lossy(self) -> LossyRule | None:
        """The rule, where tokens may be owed to it; a reply with nothing drafted is lossless."""
        return self.rule if self.statistics.drafted else None


def new_reply() -> Reply:
    """An empty reply whose time starts now."""
    return Reply(Statistics(time.perf_counter()))
