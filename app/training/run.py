"""A training run: its stages in order, each of which goes on where the process before was ended.

What is done is in the run's folder: samples, checkpoints, the test's answers and state.json. What
was planned is a number of tokens and of steps, and no time, so that a run that was killed comes to
the same result.
"""

import json
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from app.answering import is_answering, listen
from app.paths import Paths
from app.training.plan import Method, Needed, Plan
from backends.base import DiskFullError, UsageError
from backends.base.safe_files import make_private_folder, write_whole
from models.bounded_files import read_object
from models.metadata.identity import fingerprint

_SCHEMA = 1
_STATE, _LOCK = "state.json", "lock"

_WRITE_SECONDS = 1.0
"""Between two notes of the progress, which the app reads."""

_LOOK_SECONDS = 0.5
"""Between two looks at whether an answer in another process is still in progress."""


class Stage(StrEnum):
    GENERATE = "generate"
    TRAIN = "train"
    TEST = "test"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    Stage.GENERATE: "answers of the model",
    Stage.TRAIN: "training",
    Stage.TEST: "testing",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """done of total: tokens, steps or answers. seconds_left: of the whole run, None if unknown."""

    stage: Stage
    done: int
    total: int
    seconds_left: float | None = None
    is_paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What was asked for: with the model's file, it determines a run.

    prompts: a file of own prompts. base: the drafter to be distilled; "" for none. system:
    instructions that chats usually have.
    """

    method: Method
    minutes: float
    seed: int = 0
    chats: bool = False
    prompts: str = ""
    base: str = ""
    system: str = ""


class Run:
    """The run of a model's file and a method; one process at a time works on it."""

    def __init__(self, paths: Paths, model: str, target: Path, order: Order) -> None:
        """model: as the user named it. target: its file or folder."""
        self.model, self.target, self.order = model, target, order
        self._fingerprint = fingerprint(target)
        self._training, self._mark = paths.training, paths.answering
        self.folder = paths.training / f"{self._fingerprint}-{order.method}"
        self._written = 0.0
        known = read_object(self.folder / _STATE)
        self.plan = _plan(known.get("plan"))
        """What an earlier process planned; None for a run that has not begun."""
        is_known = self.plan is not None and known.get("stage") in [*Stage]
        self.stage = Stage(known["stage"]) if is_known else Stage.GENERATE
        """The first stage that has not ended."""

    def check(self) -> None:
        """Refuse to go on with what was begun otherwise.

        Raises:
            UsageError: the model's file changed meanwhile, or other options were given.
        """
        for folder in self._training.glob(f"*-{self.order.method}"):
            found = read_object(folder / _STATE)
            if found.get("target") != str(self.target):
                continue
            if folder != self.folder:
                raise UsageError(
                    f"{self.target.name} has changed since its training began",
                    "what it said and did then is of no use any more",
                    "To begin anew: --anew",
                )
            begun, wanted = found.get("order", {}), json.loads(json.dumps(asdict(self.order)))
            differing = sorted(f"--{name}" for name in wanted if begun.get(name) != wanted[name])
            if differing:
                raise UsageError(
                    f"a training of {self.target.name} with other options is not finished",
                    f"they differ in {', '.join(differing)}",
                    "Repeat its options to go on, or begin anew: --anew",
                )

    def discard(self) -> None:
        """Remove what was begun for this file by this method, also before it changed."""
        for folder in self._training.glob(f"*-{self.order.method}"):
            is_of_this = read_object(folder / _STATE).get("target") == str(self.target)
            if is_of_this or folder == self.folder:
                shutil.rmtree(folder, ignore_errors=True)
        self.plan = None

    @contextmanager
    def locked(self) -> Generator[None]:
        """Hold the run against other processes.

        Raises:
            UsageError: another one works on it.
            DiskFullError: nothing can be written.
        """
        try:
            make_private_folder(self.folder)
            listen(self._mark)
            lock = FileLock(self.folder / _LOCK, blocking=False)
            lock.acquire()
        except Timeout as error:
            what = f"{self.target.name} is being trained for already"
            raise UsageError(what, "by another specchat, which goes on") from error
        except OSError as error:
            raise DiskFullError("nothing can be kept of a training", str(error)) from error
        try:
            yield
        finally:
            lock.release()
            if self.plan is None:  # nothing to go on with
                shutil.rmtree(self.folder, ignore_errors=True)

    def begin(self, plan: Plan) -> None:
        self.plan = plan
        self._write(Progress(Stage.GENERATE, 0, plan.tokens))

    def end(self, stage: Stage) -> None:
        """Note that a stage is done, so that the next one is begun with."""
        stages = [*Stage]
        self.stage = stages[min(stages.index(stage) + 1, len(stages) - 1)]
        self._write(Progress(self.stage, 0, 1))

    def followed(
        self, progress: Iterator[Progress], stop: Callable[[], bool]
    ) -> Iterator[Progress]:
        """The progress of a stage with the time left of the run; it rests while an answer is made.

        stop: as the stage is asked too, which ends then after its present step.

        Raises:
            UsageError: the model's file is another one now.
        """
        if fingerprint(self.target) != self._fingerprint:
            what = f"{self.target.name} has changed since its training began"
            raise UsageError(what, "what it said and did then is of no use", "Begin anew: --anew")
        began, first, rested = time.monotonic(), -1, 0.0
        for one in progress:
            first = one.done if first < 0 else first
            spent = time.monotonic() - began - rested
            now = replace(one, seconds_left=self._left(one, first, spent))
            self.note(now)
            yield now
            resting = time.monotonic()
            while is_answering(self._mark) and not stop():
                self.note(replace(now, is_paused=True))
                yield replace(now, is_paused=True)
                time.sleep(_LOOK_SECONDS)
            rested += time.monotonic() - resting

    def _left(self, now: Progress, first: int, spent: float) -> float | None:
        """By the speed of this stage, or as planned before it is known, and the stages to come."""
        assert self.plan is not None
        planned = {
            Stage.GENERATE: self.plan.generate_seconds,
            Stage.TRAIN: self.plan.train_seconds,
            Stage.TEST: self.plan.test_seconds,
        }
        stages = [*Stage]
        later = sum(planned[stage] for stage in stages[stages.index(now.stage) + 1 :])
        left = max(now.total - now.done, 0)
        each = planned[now.stage] / max(now.total, 1)
        if now.done > first and spent > _WRITE_SECONDS:
            each = spent / (now.done - first)
        return left * each + later

    def note(self, progress: Progress) -> None:
        """Keep it for those who look, at most once a second."""
        if time.monotonic() - self._written >= _WRITE_SECONDS:
            self._write(progress)

    def _write(self, progress: Progress) -> None:
        self._written = time.monotonic()
        assert self.plan is not None
        state = {
            "schema": _SCHEMA,
            "model": self.model,
            "target": str(self.target),
            "order": asdict(self.order),
            "plan": asdict(self.plan),
            **asdict(progress),
        }
        try:
            write_whole(self.folder / _STATE, json.dumps(state))
        except OSError as error:
            raise DiskFullError("nothing can be kept of a training", str(error)) from error


def _plan(stored: Any) -> Plan | None:
    with suppress(KeyError, TypeError, ValueError):
        needed = Needed(**stored["needed"]) if stored["needed"] else None
        return Plan(**(stored | {"needed": needed, "method": Method(stored["method"])}))
    return None
