"""Measures the cost of passes per model, engine, device and threads, and caches it on disk.

A curve measured under load is stored with its uncertainty, repeated at a few later starts and
combined with their results.
"""

import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from math import nan
from pathlib import Path
from typing import Any, Self

import psutil

from app.builtin_prompts import built_in_prompts
from app.learned.store import Store, number, run_key
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import BlockContext, Context, Model, ModelInfo
from backends.base.model import pass_is_stopped
from backends.engines.engine_facts import Runner
from decoding.estimation.calibration import (
    MOST_TOKENS,
    BlockPasses,
    Passes,
    PassFacts,
    calibrate,
    calibrate_held,
    combined,
    ends_early,
)
from decoding.estimation.cost import LEAST_HELD, CostModel, DraftCost, Held, Measured
from decoding.estimation.draft_cost import BlockCost

_NEGLIGIBLE = 0.1
"""Share of the processors that a desktop's background work takes."""

_SHORTEST = 0.2
"""Seconds; systems count processor time in steps too coarse for less."""


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Processor seconds spent so far: idle ones of the machine, and those of this process."""

    wall: float
    idle: float
    own: float

    @classmethod
    def now(cls) -> Self:
        """Read the clocks; idle is not a number where the system does not tell it."""
        try:
            times = psutil.cpu_times()
            idle = times.idle + getattr(times, "iowait", 0.0)
        except Exception:  # psutil promises none: /proc may be hidden, or another's
            idle = nan
        return cls(time.monotonic(), idle, time.process_time())

    def load_until(self, later: "ProcessorTimes") -> float:
        """Share of the processors that other programs took since, 0 if negligible or unknown."""
        wall = later.wall - self.wall
        available = wall * (psutil.cpu_count() or 1)
        if wall < _SHORTEST:
            return 0.0
        others = available - (later.idle - self.idle) - (later.own - self.own)
        share = min(others / available, 1.0)
        return share if share > _NEGLIGIBLE else 0.0


SCHEMA = 4

CONTEXT = 2 * MOST_TOKENS
"""Size in tokens of the context in which passes are measured."""

_WAITS = (60.0, 3600.0, 24 * 3600.0)
"""Seconds until an uncertain curve is measured again, after one, two, and more measurements.

On a simulated machine whose passes are interrupted four times in five, a curve is within 15 % after
one measurement in 24 of 60 cases, after two in 50, after three in 59, and never in more
(tests/decoding/estimation/test_calibration.py).
"""


Beside = Callable[[], AbstractContextManager[Context]]
"""Opens a context of a head beside an empty one of its model."""

_READING = "-reading"
"""Kind of passes, in the name of their file."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A stored measurement, and the number of measurements combined in it."""

    measured: Measured
    times: int


@dataclass(frozen=True, slots=True)
class Calibrations:
    """The cache of measurements; unreadable files are silently measured again."""

    paths: Paths
    notify: Callable[[str], None]

    def target(self, model: Model, context: TargetContext) -> CostModel:
        """Cost model of a target's passes.

        Raises:
            ContextInUseError: they are to be measured, a reply runs the context, and there is no
                memory for another.
            ModelError: the engine failed.
        """
        return CostModel(self.measured_target(model, context))

    def measured_target(self, model: Model, context: TargetContext) -> Measured:
        """Measured costs of a target's passes.

        Raises:
            ContextInUseError, ModelError: as of target.
        """
        name = model.info.name
        return self._measured(model, context.facts, lambda: context.for_measuring(CONTEXT), name)

    def known_target(self, info: ModelInfo) -> Measured | None:
        return self._known(info.path, info.variant, Runner.of(info))

    def drafter(self, model: Model, context: Context, name: str) -> DraftCost:
        """Cost of a drafter to draw one token, and to read one in a batch.

        name: what the user knows it by. Its context is left empty.

        Raises:
            ModelError: the engine failed.
        """
        return DraftCost.of(self._measured(model, context, lambda: nullcontext(context), name))

    def head(
        self,
        model: Model,
        context: Context,
        beside: Beside,
        name: str,
        costs: CostModel | None = None,
    ) -> DraftCost:
        """Cost of a head that drafts from its context; name: what the user knows it by.

        beside: opens a context like it where nothing has been read, to be measured. costs: of
        passes of its model, with which it shares the device.

        Raises:
            ModelError: the engine failed.
        """
        if not isinstance(context, BlockContext):
            cost = DraftCost.of(self._measured(model, context, beside, name), costs)
            if context.kv_bytes_per_token:
                return cost
            # It attends to its model's cache, so reading a text costs it nothing.
            return DraftCost(cost.draw_seconds, 0.0, is_steady=cost.is_steady, beside=costs)
        drawing, reading = (
            self._measured(model, BlockPasses(context, reads), _blocks(beside, reads), name, kind)
            for reads, kind in ((False, ""), (True, _READING))
        )
        return BlockCost.of_block(drawing, reading, context.longest, costs)

    def known_drafter(
        self, path: Path, runner: Runner, variant: str = "", longest: int = 0
    ) -> DraftCost | None:
        """Stored cost of a model under a runner; None if it was not measured.

        longest: tokens of its blocks, 0 if it drafts token by token.
        """
        drawing = self._known(path, variant, runner)
        if drawing is None or not longest:
            return DraftCost.of(drawing) if drawing else None
        reading = self._known(path, variant + _READING, runner)
        return BlockCost.of_block(drawing, reading, longest) if reading else None

    def _known(self, path: Path, variant: str, runner: Runner) -> Measured | None:
        kept = _store(self._file(path, variant, runner)).read()
        return kept.measured if kept else None

    def _measured(
        self,
        model: Model,
        facts: PassFacts,
        for_measuring: Callable[[], AbstractContextManager[Passes]],
        name: str,
        kind: str = "",
    ) -> Measured:
        """Stored measurement of a model's passes; taken now if missing or improvable.

        kind: of passes, if these are not the usual ones.
        """
        info = replace(model.info, variant=model.info.variant + kind)
        path = self.file(info)
        kept = _store(path).read()
        # With a conversation in the context the user would have to wait.
        if kept is not None and (facts.length or not _is_to_improve(kept, path, facts, info)):
            return kept.measured
        with for_measuring() as context:
            if not kind:  # told once
                self.notify(f"measuring what {name} costs here")
            return self._measured_now(model, info, context)

    def improve_target(
        self, model: Model, context: TargetContext, is_wanted: Callable[[], bool]
    ) -> bool:
        """Measure a target's passes if the next start would; returns whether that was due.

        In a context of their own, so that the first keeps its conversation.

        Raises:
            PassStoppedError: is_wanted, asked before each pass, returned False.
            ModelError: memory for another context is short, or the engine failed.
        """
        info, path = model.info, self.file(model.info)
        kept = _store(path).read()
        is_due = kept is None or _is_to_improve(kept, path, context.facts, info)
        if is_due:
            with context.second(CONTEXT) as own:
                self._measured_now(model, info, own, is_wanted)
        return is_due

    def measure_held(
        self, model: Model, context: TargetContext, is_wanted: Callable[[], bool]
    ) -> Held | None:
        """Measure a target's passes after what its context holds; None if that is not due.

        It is due from LEAST_HELD tokens on, wherever as many were not measured to within a factor
        of two. The context holds the same in the end.

        Raises:
            PassStoppedError, ModelError: as of improve_target.
        """
        store, length = _store(self.file(model.info), model.info), context.facts.length
        kept = store.read()
        if kept is None or length < LEAST_HELD or _is_known(kept.measured.held, length):
            return None
        with context.use() as own, context.second(CONTEXT) as empty:
            found = calibrate_held(own, empty, kept.measured, _text(model), is_wanted=is_wanted)
        if found is None:
            return None
        held = {length: found}

        def added(stored: _Kept | None) -> _Kept:
            stored = stored or kept
            measured = replace(stored.measured, held={**stored.measured.held, **held})
            return replace(stored, measured=measured)

        return store.change(added).measured.held

    def _measured_now(
        self,
        model: Model,
        info: ModelInfo,
        context: Passes,
        is_wanted: Callable[[], bool] = lambda: not pass_is_stopped(),
    ) -> Measured:
        tokens, share = _text(model), _expert_share(info)
        before = ProcessorTimes.now()
        on_gpu = not (info.uses_processor or info.host)
        measured = calibrate(
            context, tokens, expert_share=share, is_wanted=is_wanted, on_gpu=on_gpu
        )
        measured = replace(measured, load=before.load_until(ProcessorTimes.now()))

        def added(stored: _Kept | None) -> _Kept:
            if stored is None:
                return _Kept(measured, 1)
            return _Kept(combined(stored.measured, measured), stored.times + 1)

        # others may have measured meanwhile
        return _store(self.file(info), info).change(added).measured

    def file(self, info: ModelInfo) -> Path:
        return self._file(info.path, info.variant, Runner.of(info))

    def _file(self, path: Path, variant: str, runner: Runner) -> Path:
        return self.paths.calibrations / f"{run_key(path, variant, runner)}.json"


def _blocks(beside: Beside, reads: bool) -> Callable[[], AbstractContextManager[BlockPasses]]:
    @contextmanager
    def opened() -> Generator[BlockPasses]:
        with beside() as context:
            assert isinstance(context, BlockContext), "it is like the one to be drafted from"
            yield BlockPasses(context, reads)

    return opened


def _expert_share(info: ModelInfo) -> float:
    """Share of the experts that one token uses, if passes read theirs from disk; else 0."""
    return info.expert_share if info.streamed_bytes_per_token else 0.0


def _is_known(held: Held, length: int) -> bool:
    return any(depth < 2 * length and length < 2 * depth for depth in held)


def _is_to_improve(kept: _Kept, path: Path, facts: PassFacts, info: ModelInfo) -> bool:
    """Whether to measure again: only if uncertain, and when the load may have ended."""
    if kept.measured.spread == 0.0:
        return ends_early(kept.measured.seconds, facts, _expert_share(info))
    return _age(path) > _WAITS[min(kept.times, len(_WAITS)) - 1]


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _store(path: Path, info: ModelInfo | None = None) -> Store[_Kept]:
    """The file of a measurement; info: of the model, to write it."""
    told = {"engine": info.engine, "device": info.device, "threads": info.threads} if info else {}
    return Store(path, SCHEMA, _kept, lambda kept: told | _record(kept))


def _record(kept: _Kept) -> dict[str, Any]:
    return asdict(kept.measured) | {"times": kept.times}


def _kept(record: dict[str, Any]) -> _Kept:
    def points(stored: dict[str, Any], *, is_positive: bool = False) -> dict[int, float]:
        return {int(n): number(value, is_positive=is_positive) for n, value in stored.items()}

    seconds, unsure = (points(record[name], is_positive=True) for name in ("seconds", "unsure"))
    changes, times = points(record["changes"]), int(record["times"])
    # absent from files of before
    held = {int(depth): points(extra) for depth, extra in record.get("held", {}).items()}
    is_whole = (
        unsure.keys() | changes.keys() | {1} <= seconds.keys() <= set(range(1, MOST_TOKENS + 1))
    )
    is_held = all(depth > 0 and 1 in extra for depth, extra in held.items())
    if not is_whole or times < 1 or (changes and 1 not in changes) or not is_held:
        raise ValueError
    switching, load = number(record["switching"], 1.0), number(record["load"], 1.0)
    expert_share = number(record["expert_share"], 1.0)
    return _Kept(Measured(seconds, switching, unsure, load, expert_share, changes, held), times)


def _text(model: Model) -> list[int]:
    """Ordinary text to time passes on; its content matters for mixtures of experts."""
    text = " ".join(prompt.text for prompt in built_in_prompts())
    tokens = list(model.tokenizer.encode(text, special=False))[: 4 * MOST_TOKENS]
    return tokens * (2 * MOST_TOKENS // max(len(tokens), 1) + 1)
