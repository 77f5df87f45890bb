"""What a drafter costs a model that streams: the held weights that it takes the place of."""

from dataclasses import dataclass
from pathlib import Path

from app.learned.disk_speeds import known_disk_speed
from app.learned.memory_bandwidth import processor_bandwidth
from app.loading.streaming.pass_time import ReadRates, pass_seconds
from app.paths import Paths
from backends.streaming.weight_layout import weight_layout
from decoding.estimation.cost import DraftCosts


@dataclass(frozen=True, slots=True)
class CostsBeside:
    """Costs of verifying beside a drafter; extra: what a step takes longer, in plain steps."""

    costs: DraftCosts
    extra: float

    @property
    def largest(self) -> int:
        return self.costs.largest

    def of_draft(self, drafted: int) -> float:
        return self.costs.of_draft(drafted) + self.extra


def displaced_seconds(
    model: Path, threads: int, budget: int, drafter_bytes: int, paths: Paths
) -> float | None:
    """Seconds that a pass takes longer if a drafter takes so many bytes of the held weights.

    budget: bytes held without it. None where the disk or the memory was not measured.

    Raises:
        ModelError: the model's file cannot be read.
    """
    disk, memory = known_disk_speed(model, paths), processor_bandwidth(threads, paths)
    if disk is None or memory is None:
        return None
    rates = ReadRates(disk.bytes_per_second, memory.bytes_per_second)
    seconds = pass_seconds(weight_layout(model), budget, rates)
    return seconds(drafter_bytes, 1) - seconds(0, 1)
