"""Plans a model that is partly on a GPU: which layers, beside which drafter, and how fast."""

import math
from contextlib import suppress
from dataclasses import dataclass, replace

from app.drafting.spec.draft_spec import DraftSpec
from app.learned.disk_speeds import disk_speed
from app.learned.memory_bandwidth import gpu_bandwidth, processor_bandwidth
from app.loading.gpu_split import GpuRoom
from app.loading.memory_plan import MemoryPlan
from app.loading.session_options import SessionOptions
from app.loading.streaming.gpu_plan import GpuPlanner
from app.loading.streaming.memory_split import Split, best_split
from app.loading.streaming.outlook import Outlook, Share
from app.loading.streaming.pass_time import ReadRates
from app.loading.streaming.split_time import SplitRates, SplitReads, split_seconds
from app.pairing.stream_choice import draft_cost, measured_rate
from app.pairing.stream_contenders import StreamContenders
from app.paths import Paths
from backends.base import OutOfMemoryError
from backends.hardware.host import physical_cores
from backends.streaming.disk_speed import DiskSpeed
from backends.streaming.lock_plan import lock_plan
from models.reference import Reference


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """Divides one model and its drafters between GPUs, memory and, if it streams, disk."""

    reference: Reference
    spec: DraftSpec
    options: SessionOptions
    paths: Paths
    planner: GpuPlanner
    streams: bool

    def plan(self) -> tuple[MemoryPlan, Outlook | None]:
        """The plan, and what to expect: None if all layers go to GPUs or the engine decides.

        A drafter is given up if what it displaces fits nowhere else. Takes up to two seconds if
        the disk or the memory was not measured before.

        Raises:
            OutOfMemoryError: the processor's part does not fit in memory.
            ModelError: the model's file cannot be read.
        """
        first = self._planned(self.planner, 0)
        if first.split is None:
            return first, None
        disk = disk_speed(self.reference.path, self.paths) if self.streams else None
        rates = self._rates(disk)
        best = self._best(first, rates) if rates else None
        taken = best.drafter.memory_bytes if best and best.drafter else 0
        if not self.spec.is_automatic:
            taken = self._contenders(first).named_bytes
        chosen = first
        with suppress(OutOfMemoryError):
            chosen = replace(self._beside(first, taken), usual=first.usual)
        return chosen, self._outlook(chosen, disk, rates, best)

    def _planned(self, planner: GpuPlanner, reserved: int) -> MemoryPlan:
        return planner.streamed(reserved) if self.streams else planner.plan(reserved)

    def _beside(self, first: MemoryPlan, reserved: int) -> MemoryPlan:
        """The plan beside drafters, which never take from the context."""
        return self._planned(replace(self.planner, asked=first.n_ctx), reserved)

    def _rates(self, disk: DiskSpeed | None) -> SplitRates | None:
        """Rates at which a pass reads; None if one of them is unknown."""
        memory = processor_bandwidth(self.options.threads or physical_cores(), self.paths)
        gpu = gpu_bandwidth()
        if memory is None or gpu is None or (self.streams and disk is None):
            return None
        of_disk = disk.bytes_per_second if disk else math.inf
        return SplitRates(ReadRates(of_disk, memory.bytes_per_second), gpu.bytes_per_second)

    def _best(self, first: MemoryPlan, rates: SplitRates) -> Split:
        """The drafter to hold on GPUs."""
        room = sum(max(one, 0) for one in GpuRoom(self.planner.gpus).usable)
        seconds = split_seconds(lambda taken: self._beside(first, taken), rates)
        return best_split(self._contenders(first).all(rates.gpu), seconds, room)

    def _contenders(self, first: MemoryPlan) -> StreamContenders:
        """Drafters for GPUs, of which those that are named for the processor take nothing."""
        nodes = tuple(node for node in self.spec.nodes if not node.on_processor)
        facts, spec = self.planner.facts, replace(self.spec, nodes=nodes)
        return StreamContenders(self.reference, facts, spec, self.options, self.paths, first.n_ctx)

    def _outlook(
        self,
        chosen: MemoryPlan,
        disk: DiskSpeed | None,
        rates: SplitRates | None,
        best: Split | None,
    ) -> Outlook:
        split = chosen.split
        assert split is not None
        reads = SplitReads.of(chosen)
        held = split.beside.weight_bytes
        if chosen.lock_bytes is not None:
            held = lock_plan(split.beside, chosen.lock_bytes).locked_bytes
        rate = 1.0 / rates.seconds(reads) if rates else None
        streamed = reads.streamed / max(self.planner.layout.bytes_per_token, 1)
        ran = measured_rate(
            self.reference.path, self.options, split.gpu_layers, streamed, self.paths
        )
        is_claimed = best is not None and best.drafter is not None and best.drafter.is_measured
        return Outlook(
            Share(held, reads.streamed),
            disk,
            ran or rate,
            best if is_claimed else None,
            draft_cost(best) if best else "",
            split,
        )
