"""A training run: its stages in order, each of which goes on where the process before was ended.

What is done is in the run's folder: samples, checkpoints, the test's answers and state.json. What
was planned is a number of tokens and of steps, and no time, so that a run that was killed comes to
the same result.
"""

import hashlib
import json
import shlex
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from app.answering import is_answering, listen
from app.learned.registered import drafter_name
from app.paths import Paths
from app.training.plan import Expected, Method, Needed, Plan, Stage, duration
from backends.base import DiskFullError, UsageError
from backends.base.safe_files import FILE_MODE, make_private_folder, write_whole
from models.bounded_files import read_object
from models.metadata.identity import fingerprint

_STATE = "state.json"

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

    backend: of the model. prompts: a file of own prompts. base: the drafter to be distilled; "" for
    none. system: instructions that chats usually have.
    """

    method: Method
    minutes: float
    backend: str = ""
    seed: int = 0
    chats: bool = False
    prompts: str = ""
    base: str = ""
    system: str = ""


@dataclass(frozen=True, slots=True)
class Begun:
    """A run as state.json tells of it; another process may work on it.

    model: a word that finds the target again, whose fingerprint it had when it began.
    """

    folder: Path
    target: Path
    model: str
    fingerprint: str
    order: Order
    plan: Plan
    progress: Progress

    @property
    def name(self) -> str:
        """Of what it makes."""
        return drafter_name(self.model, self.order.method)

    @property
    def words(self) -> str:
        """Such as "train, 34 %, 50 min left"."""
        now, left = self.progress, self.progress.seconds_left
        if now.is_paused:
            return f"{now.stage}, waits for the answer"
        words = f"{now.stage}, {100 * now.done // max(now.total, 1)} %"
        return words if left is None else f"{words}, {duration(left)} left"

    @property
    def options(self) -> list[str]:
        """Of the command that goes on with it."""
        words = list[str]()
        for name, value in asdict(self.order).items():
            if name not in ("system", "backend") and value:  # which settings have
                option = "--from" if name == "base" else f"--{name}"
                words += [option] if value is True else [option, str(value)]
        return words

    @property
    def command(self) -> str:
        """Goes on with it."""
        return shlex.join(["specchat", "models", "train", self.model, *self.options])

    @property
    def is_held(self) -> bool:
        """Whether a process works on it."""
        lock = _lock(self.folder)
        with suppress(Timeout, OSError):
            if Path(lock.lock_file).exists():
                lock.acquire()
                _release(lock)
            return False
        return True

    def discard(self) -> None:
        """Raises UsageError: a process works on it."""
        if self.is_held:
            raise UsageError(f"{self.name} is in training", "another specchat goes on with it")
        _discard(self.folder)


def unfinished(paths: Paths) -> list[Begun]:
    """All runs that have begun, the one last worked on first; damaged ones are left out."""
    found = [(_written(folder), _begun(folder)) for folder in paths.training.glob("*/")]
    return [one for _, one in sorted(found, key=lambda pair: -pair[0]) if one]


def _written(folder: Path) -> float:
    with suppress(OSError):  # it has not begun, or ends
        return (folder / _STATE).stat().st_mtime
    return 0.0


def _begun(folder: Path) -> Begun | None:
    state = read_object(folder / _STATE)
    with suppress(KeyError, TypeError, ValueError):
        plan, progress, order = (dict(state[name]) for name in ("plan", "progress", "order"))
        plan["expected"] = Expected(**plan["expected"])
        plan["seconds"] = {Stage(name): seconds for name, seconds in plan["seconds"].items()}
        plan["needed"] = Needed(**plan["needed"]) if plan["needed"] else None
        progress["stage"], order["method"] = Stage(progress["stage"]), Method(order["method"])
        return Begun(
            folder, Path(state["target"]), state["model"], state["fingerprint"], Order(**order),
            Plan(**plan), Progress(**progress),
        )  # fmt: skip
    return None


class Run:
    """The run of a model's file and a method; one process at a time works on it."""

    def __init__(self, paths: Paths, target: Path, order: Order, model: str = "") -> None:
        """target: the model's file or folder. model: a word that finds it again."""
        self.target, self.order, self._model = target, order, model or str(target)
        self._fingerprint, self._mark = fingerprint(target), paths.answering
        digest = hashlib.sha256(str(target).encode()).hexdigest()[:16]
        self.folder = paths.training / f"{digest}-{order.method}"
        self._begun = _begun(self.folder)
        self._written = 0.0

    @property
    def plan(self) -> Plan | None:
        """As an earlier process planned; None for a run that has not begun."""
        return self._begun and self._begun.plan

    @property
    def stage(self) -> Stage:
        """The first one that has not ended."""
        return self._begun.progress.stage if self._begun else Stage.GENERATE

    @contextmanager
    def locked(self, *, anew: bool = False) -> Generator[None]:
        """Hold the run against other processes.

        anew: discard what was begun for this file by this method.

        Raises:
            UsageError: another process works on it, the model's file changed meanwhile, or what
                was begun had other options.
            DiskFullError: nothing can be written.
        """
        lock = _lock(self.folder)
        try:
            listen(self._mark)
            lock.acquire()
        except Timeout as error:
            what = f"{self.target.name} is being measured or trained for already"
            raise UsageError(what, "by another specchat, which goes on", "Wait for it.") from error
        except OSError as error:
            raise _unkept(error) from error
        try:
            if anew:
                self.discard()
            self._check()
            yield
        finally:
            if self.plan is None:  # nothing to go on with
                self.discard()
            _release(lock)

    def _check(self) -> None:
        if not (begun := self._begun):
            return
        if begun.fingerprint != self._fingerprint:
            raise self._changed()
        wanted, order = asdict(self.order), asdict(begun.order)
        if differing := [f"--{name}" for name in wanted if order[name] != wanted[name]]:
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
        _discard(self.folder)
        self._begun = None

    def begin(self, plan: Plan) -> None:
        self.discard()
        self._write(Progress(Stage.GENERATE, 0, plan.tokens), plan)

    def end(self, stage: Stage) -> None:
        """Note that a stage is done, so that the next one is begun with."""
        if later := _later(stage):
            self._write(Progress(later[0], 0, 1))

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
        later = sum(seconds[stage] for stage in _later(now.stage))
        return max(now.total - now.done, 0) * each + later

    def note(self, progress: Progress) -> None:
        """Keep it for those who look, at most once a second."""
        if time.monotonic() - self._written >= _WRITE_SECONDS:
            self._write(progress)

    def _write(self, progress: Progress, plan: Plan | None = None) -> None:
        plan = plan or self.plan
        assert plan is not None, "it has begun"
        self._written = time.monotonic()
        begun = Begun(
            self.folder, self.target, self._model, self._fingerprint, self.order, plan, progress
        )
        try:
            make_private_folder(self.folder)
            write_whole(self.folder / _STATE, json.dumps(asdict(begun), default=str))
        except OSError as error:
            raise _unkept(error) from error
        self._begun = begun


def _later(stage: Stage) -> list[Stage]:
    return list(Stage)[list(Stage).index(stage) + 1 :]


def _discard(folder: Path) -> None:
    """The state first: what is left in part cannot go on."""
    (folder / _STATE).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path) -> FileLock:
    return FileLock(folder.with_name(f"{folder.name}.lock"), mode=FILE_MODE, blocking=False)


def _release(lock: FileLock) -> None:
    """Its file goes first, which Windows refuses and FileLock does there itself."""
    with suppress(OSError):
        Path(lock.lock_file).unlink()
    lock.release()


def _unkept(error: OSError) -> DiskFullError:
    return DiskFullError("nothing can be kept of a training", str(error))
