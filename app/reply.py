"""A reply as it grows."""

import time
from dataclasses import dataclass, field

from decoding.events import FinishReason
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


def new_reply() -> Reply:
    """An empty reply whose time starts now."""
    return Reply(Statistics(time.perf_counter()))
