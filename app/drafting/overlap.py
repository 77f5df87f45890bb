"""Builds the drafter that drafts ahead, during verification, beside one that waits for it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.builtin_prompts import built_in_prompts
from app.drafting.drafter_handle import DrafterEnvironment, DrafterHandle
from app.learned.calibrations import ProcessorTimes
from app.learned.store import Store, loaded_key, number
from app.loading.target_context import ContextInUseError
from app.paths import Paths
from backends.base import Context, ModelError, ModelInfo, ThreadedContext
from backends.engines.backend_selection import LLAMACPP
from backends.hardware.host import physical_cores
from decoding.drafters.draft_model import DraftModel
from decoding.estimation.cost import CostModel
from decoding.overlap.overlap_cost import (
    FREE,
    AtOnce,
    OverlapCost,
    Prediction,
    Slowdown,
    measure_at_once,
    predicted,
)
from decoding.overlap.overlapping import DrafterThread, Overlapping, ThreadSplit
from decoding.planning.managed_drafter import ManagedDrafter

SCHEMA = 1

Threads = tuple[int, int]
"""Threads of the target and of the drafter while both run; (0, 0) where they are not divided."""

_Found = dict[Threads, AtOnce]


def measured_at_once(
    path: Path, choices: tuple[Threads, ...], measure: Callable[[Threads], AtOnce]
) -> _Found:
    """What both take at once, for each choice of threads, kept in a file; measured if missing.

    Nothing where other programs ran meanwhile: it would tell of them, and is measured again at the
    next start.

    Raises:
        ContextInUseError, ModelError: as of measure.
    """
    store = Store(path, SCHEMA, _parsed, _record)
    known = store.read() or {}
    if all(threads in known for threads in choices):
        return {threads: known[threads] for threads in choices}
    before = ProcessorTimes.now()
    found = {threads: measure(threads) for threads in choices}
    if before.load_until(ProcessorTimes.now()):
        return {}
    store.change(lambda stored: (stored or {}) | found)
    return found


def overlap_file(target: ModelInfo, drafter: ModelInfo, paths: Paths) -> Path:
    return paths.calibrations / f"{loaded_key(target)}-at-once-{loaded_key(drafter)}.json"


def _record(found: _Found) -> dict[str, Any]:
    return {"factors": {f"{a}+{b}": [one.target, one.drafter] for (a, b), one in found.items()}}


def _parsed(record: dict[str, Any]) -> _Found:
    found: _Found = {}
    for key, (target, drafter) in record["factors"].items():
        first, second = key.split("+")
        factors = number(target, is_positive=True), number(drafter, is_positive=True)
        found[int(first), int(second)] = AtOnce(*factors)
    return found


_WORTH_MEASURING = 1.05
"""Predicted gain over drafting in turn, if the two did not slow each other, from which it is
measured whether they do. A guess; not measured."""

_TEXT = 128
"""Tokens of the text that both are measured on."""

_UNDIVIDED = (0, 0)


@dataclass(frozen=True, slots=True)
class _Way:
    """How both run at once, what they then take, and what that is expected to be worth."""

    threads: Threads
    at_once: AtOnce
    prediction: Prediction


@dataclass(frozen=True, slots=True)
class Overlap:
    environment: DrafterEnvironment

    def beside(
        self, part: DrafterHandle, costs: CostModel, *, always: bool = False
    ) -> Iterator[DrafterHandle]:
        """The drafter that drafts ahead with a drafter's model, if that could pay.

        The controller parks it while it does not pay. part keeps owning the model. costs: of the
        target's passes. always: even if no gain is expected, for checks.
        """
        drafter, context, model = part.member.drafter, part.context, part.model
        if not isinstance(drafter, DraftModel) or context is None or model is None:
            return
        is_free = model.info.backend == LLAMACPP and not drafter.draws_on_device
        if not is_free or not context.can_roll_back or part.is_head:
            return  # what reads the target's passes, or belongs to its thread, cannot run beside it
        way = self._best(part, context, model.info, costs, always=always)
        if way is not None:
            yield self._built(part, drafter, context, way)

    def _best(
        self,
        part: DrafterHandle,
        context: Context,
        info: ModelInfo,
        costs: CostModel,
        *,
        always: bool,
    ) -> _Way | None:
        choices = thread_choices(self.environment.target.info, info, physical_cores())
        if not choices or part.member.cost is None:
            return None
        draw = part.member.cost.draw_seconds
        acceptance = part.member.estimates.by_position(0, costs.largest - 1)

        def worth(at_once: AtOnce | None) -> Prediction:
            return predicted(acceptance, costs, draw, at_once)

        if always:
            return _Way(choices[0], FREE, worth(FREE))
        if worth(FREE).speedup < _WORTH_MEASURING * max(worth(None).speedup, 1.0):
            return None
        with suppress(ContextInUseError, ModelError, OSError):
            measured = measured_at_once(
                overlap_file(self.environment.target.info, info, self.environment.paths),
                choices,
                lambda threads: self._measured(context, info, costs, threads),
            )
            ways = [_Way(threads, one, worth(one)) for threads, one in measured.items()]
            return max(ways, key=lambda way: way.prediction.speedup, default=None)
        return None

    def _measured(
        self, context: Context, info: ModelInfo, costs: CostModel, threads: Threads
    ) -> AtOnce:
        self.environment.notify("measuring what drafting during verification costs here")
        text = " ".join(prompt.text for prompt in built_in_prompts())
        tokens = list(self.environment.target.tokenizer.encode(text, special=False))[:_TEXT]
        length = min(5, costs.largest)  # of a usual draft, and the token before it
        worker = DrafterThread()
        try:
            with self.environment.context.for_measuring(_TEXT) as own:
                split = self._split(own, context, info, threads)
                return measure_at_once(own, context, worker, tokens, length, split)
        finally:
            worker.close()

    def _split(
        self, target: Context, drafter: Context, info: ModelInfo, threads: Threads
    ) -> ThreadSplit | None:
        if threads == _UNDIVIDED:
            return None
        if not isinstance(target, ThreadedContext) or not isinstance(drafter, ThreadedContext):
            return None
        alone = self.environment.target.info.threads, info.threads
        return ThreadSplit(target, drafter, threads, alone)

    def _built(
        self, part: DrafterHandle, drafter: DraftModel, context: Context, way: _Way
    ) -> DrafterHandle:
        lines = part.member
        cost = lines.cost
        assert cost is not None, "it has a model"
        assert part.model is not None
        info = part.model.info
        name = f"overlap({lines.name})"
        worker = DrafterThread()
        overlapping = Overlapping(
            name,
            drafter.anew(),
            worker,
            acceptance=lines.estimates.of_draft,
            draw_seconds=lambda: cost.draw_seconds,
            split=self.environment.context.beside(
                lambda own: self._split(own, context, info, way.threads)
            ),
        )
        member = ManagedDrafter(
            overlapping,
            cost=OverlapCost(cost, way.prediction.hidden),
            slowdown=Slowdown(way.at_once.target),
            in_turn=lines,
        )
        return DrafterHandle(f"overlap({part.key})", member, overlapping=overlapping)


def thread_choices(target: ModelInfo, drafter: ModelInfo, cores: int) -> tuple[Threads, ...]:
    """Divisions of the processor's cores that are worth measuring; none where there is one core.

    A device of its own leaves nothing to divide.
    """
    if not (target.uses_processor and drafter.uses_processor):
        return (_UNDIVIDED,)
    shares = {1, cores // 2}
    divided = {
        (min(cores - share, target.threads), min(share, drafter.threads))
        for share in shares
        if 0 < share < cores
    }
    return tuple(sorted(divided))
