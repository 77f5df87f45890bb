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
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from app.answering import is_answering, listen
from app.paths import Paths
from app.training.plan import Expected, Method, Needed, Plan, Stage
from backends.base import DiskFullError, UsageError
from backends.base.safe_files import make_private_folder, write_whole
from models.bounded_files import read_object
from models.metadata.identity import fingerprint

_SCHEMA, _STATE = 1, "state.json"

_WRITE_SECONDS = 1.0
"""Between two notes of the progress, which the app reads."""

_TELLING = 0.05
"""Share of a stage whose time tells that of the rest: answers that grow side by side end late."""

_LOOK_SECONDS = 0.5
"""Between two looks at whether an answer in another process is still in progress."""


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
    """The run of a model's file and a method; one process at a time works on it.

    plan: what an earlier process planned; None for a run that has not begun. stage: the first one
    that has not ended.
    """

    def __init__(self, paths: Paths, target: Path, order: Order) -> None:
        """target: the model's file or folder."""
        self.target, self.order = target, order
        self._fingerprint, self._mark = fingerprint(target), paths.answering
        self.folder = paths.training / f"{self._fingerprint}-{order.method}"
        self.plan, self.stage = _stored(read_object(self.folder / _STATE))
        self._written = 0.0

    @contextmanager
    def locked(self, *, anew: bool = False) -> Generator[None]:
        """Hold the run against other processes.

        anew: discard what was begun for this file by this method.

        Raises:
            UsageError: another process works on it, the model's file changed meanwhile, or what
                was begun had other options.
            DiskFullError: nothing can be written.
        """
        lock = FileLock(self.folder.with_name(f"{self.folder.name}.lock"), blocking=False)
        try:
            make_private_folder(self.folder.parent)
            listen(self._mark)
            lock.acquire()
        except Timeout as error:
            what = f"{self.target.name} is being measured or trained for already"
            raise UsageError(what, "by another specchat, which goes on", "Wait for it.") from error
        except OSError as error:
            raise DiskFullError("nothing can be kept of a training", str(error)) from error
        try:
            if anew:
                self.discard()
            self._check()
            yield
        finally:
            if self.plan is None:  # nothing to go on with
                shutil.rmtree(self.folder, ignore_errors=True)
            lock.release()

    def _begun(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """What was begun for this file by this method, also before it changed: folder and state."""
        for folder in self.folder.parent.glob(f"*-{self.order.method}"):
            state = read_object(folder / _STATE)
            if folder == self.folder or state.get("target") == str(self.target):
                yield folder, state

    def _check(self) -> None:
        wanted = json.loads(json.dumps(asdict(self.order)))
        for folder, state in self._begun():
            if folder != self.folder:
                raise self._changed()
            begun = state.get("order", wanted)
            if differing := [f"--{name}" for name in wanted if begun.get(name) != wanted[name]]:
                raise UsageError(
                    f"a training of {self.target.name} with other options is not finished",
                    f"they differ in {', '.join(sorted(differing))}",
                    "Repeat its options to go on, or begin anew: --anew",
                )

    def _changed(self) -> UsageError:
        what = f"{self.target.name} has changed since its training began"
        why = "what it said and did then is of no use any more"
        return UsageError(what, why, "To begin anew: --anew")

    def discard(self) -> None:
        """Remove what was begun; the state first, as what is left in part cannot go on."""
        for folder, _ in self._begun():
            (folder / _STATE).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
        self.plan, self.stage = None, Stage.GENERATE

    def begin(self, plan: Plan) -> None:
        self.discard()
        self.plan = plan
        self._write(Progress(Stage.GENERATE, 0, plan.tokens))

    def end(self, stage: Stage) -> None:
        """Note that a stage is done, so that the next one is begun with."""
        if later := self._later(stage):
            self.stage = later[0]
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
            raise self._changed()
        began, first = time.monotonic(), -1
        for one in progress:
            first = one.done if first < 0 else first
            spent = time.monotonic() - began
            now = replace(one, seconds_left=self._left(one, first, spent))
            self.note(now)
            yield now
            while is_answering(self._mark) and not stop():
                paused = replace(now, is_paused=True)
                self.note(paused)
                yield paused
                time.sleep(_LOOK_SECONDS)
            began = time.monotonic() - spent

    def _left(self, now: Progress, first: int, spent: float) -> float:
        """By the speed of this stage, or as planned before it is known, and the stages to come."""
        assert self.plan is not None, "it has begun"
        seconds = self.plan.seconds
        each = seconds[now.stage] / max(now.total, 1)
        if now.done - first > _TELLING * now.total:
            each = spent / (now.done - first)
        later = sum(seconds[stage] for stage in self._later(now.stage))
        return max(now.total - now.done, 0) * each + later

    @staticmethod
    def _later(stage: Stage) -> list[Stage]:
        return list(Stage)[list(Stage).index(stage) + 1 :]

    def note(self, progress: Progress) -> None:
        """Keep it for those who look, at most once a second."""
        if time.monotonic() - self._written >= _WRITE_SECONDS:
            self._write(progress)

    def _write(self, progress: Progress) -> None:
        assert self.plan is not None, "it has begun"
        self._written = time.monotonic()
        facts = {"schema": _SCHEMA, "target": str(self.target), "order": asdict(self.order)}
        facts["plan"] = asdict(self.plan)
        self.keep(_STATE, json.dumps(facts | asdict(progress)))

    def keep(self, name: str, content: str) -> None:
        """Write a file of the run. Raises DiskFullError."""
        try:
            make_private_folder(self.folder)
            write_whole(self.folder / name, content)
        except OSError as error:
            raise DiskFullError("nothing can be kept of a training", str(error)) from error


def _stored(state: dict[str, Any]) -> tuple[Plan | None, Stage]:
    with suppress(KeyError, TypeError, ValueError):
        plan: dict[str, Any] = dict(state["plan"])
        plan["method"], plan["expected"] = Method(plan["method"]), Expected(**plan["expected"])
        plan["seconds"] = {Stage(name): seconds for name, seconds in plan["seconds"].items()}
        plan["needed"] = Needed(**plan["needed"]) if plan["needed"] else None
        return Plan(**plan), Stage(state["stage"])
    return None, Stage.GENERATE
