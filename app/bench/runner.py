"""Runs a bench: every method on every prompt, interleaved, in several rounds."""

import datetime
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.bench.methods import Method, Methods, Outcome
from app.bench.results import PLAIN, Bench, Run
from app.engine.session import Session, bytes_per_token
from backends.base import ModelError, UsageError
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings

# Prompts and suites, also for a model that is read from disk.

_FILE = Path(__file__).with_name("suite.toml")


@dataclass(frozen=True, slots=True)
class Suite:
    """How much a bench measures; it stops between rounds once its seconds are used up.

    prompts: number of prompts of each kind.
    """

    name: str
    prompts: int
    rounds: int
    max_tokens: int
    seconds: float
    temperatures: tuple[float, ...] = (0.0, 0.8)
    with_fixed: bool = False
    """Whether fixed draft lengths are measured too, for comparison with the controller."""


SUITES = {
    "quick": Suite("quick", 2, 3, 128, 480.0),
    "full": Suite("full", 4, 5, 192, 7200.0, with_fixed=True),
}


@dataclass(frozen=True, slots=True)
class Task:
    kind: str
    number: int
    text: str


def tasks(suite: Suite) -> list[Task]:
    chosen: list[Task] = []
    for entry in tomllib.loads(_FILE.read_text(encoding="utf-8"))["prompt"]:
        number = sum(task.kind == entry["kind"] for task in chosen)
        if number < suite.prompts:
            chosen.append(Task(entry["kind"], number, entry["text"]))
    return chosen


WARM_UP_TOKENS = 16
"""Of one reply by each method, before any is measured."""

_SHORTER = ((2, 2, 128), (1, 2, 128), (1, 2, 64), (1, 1, 64), (1, 1, 32))
"""Prompts of a kind, temperatures and tokens of a reply, in the order in which suites shrink."""

_READING_PASSES = 3
"""Passes that take no part in decoding, for each reply: reading the prompt, in pieces."""

_MOST_TIMES = 4
"""Times the suite's own time that its shortest form may take."""


def slow_suite(suite: Suite, plain_seconds: float, n_methods: int) -> Suite:
    """The longest form of a suite of which one round fits into its time.

    plain_seconds: of a token without drafts.

    Raises:
        UsageError: even the shortest form would take several times as long.
    """
    forms = [_shortened(suite, *size) for size in _SHORTER]
    for form in forms:
        if round_seconds(form, plain_seconds, n_methods) <= suite.seconds:
            return form
    shortest = forms[-1]
    least = round_seconds(shortest, plain_seconds, n_methods)
    if least > _MOST_TIMES * suite.seconds:
        raise UsageError(
            f"a bench would take about {least / 3600:.1f} hours",
            f"a token takes {plain_seconds:.2g} s, and the shortest round is "
            f"{len(tasks(shortest))} answers of {shortest.max_tokens} tokens, {n_methods} times",
            "Compare single answers instead: specchat ask --json, with and without --draft off.",
        )
    return shortest


def round_seconds(suite: Suite, plain_seconds: float, n_methods: int) -> float:
    """Seconds of a round at most, if no method is slower than plain decoding."""
    replies = len(tasks(suite)) * len(suite.temperatures)
    passes = replies * (suite.max_tokens + _READING_PASSES) + WARM_UP_TOKENS
    return passes * n_methods * plain_seconds


def _shortened(suite: Suite, prompts: int, temperatures: int, max_tokens: int) -> Suite:
    return replace(
        suite,
        prompts=min(prompts, suite.prompts),
        temperatures=suite.temperatures[:temperatures],
        max_tokens=min(max_tokens, suite.max_tokens),
        with_fixed=False,
    )


def size_in_words(suite: Suite) -> str:
    listed = " and ".join(f"{one:g}" for one in suite.temperatures)
    return f"{len(tasks(suite))} prompts, up to {suite.max_tokens} tokens, temperature {listed}"


class Runner:
    def __init__(self, session: Session, methods: Methods, suite: Suite) -> None:
        self._session = session
        self._methods = methods
        self._suite = suite
        self._notes = list(methods.notes)
        self._tasks = [task for task in tasks(suite) if self._fits(task)]
        self._runs: list[Run] = []
        self._rounds = 0
        self._started = datetime.datetime.now(datetime.UTC)

    def _fits(self, task: Task) -> bool:
        needed = len(self._prompt(task)) + self._suite.max_tokens
        if needed <= self._session.context.facts.n_ctx:
            return True
        self._notes.append(
            f"{task.kind} {task.number + 1} was left out: it needs a context of {needed:,} tokens"
        )
        return False

    def run(self, clock: Callable[[], float] = time.perf_counter) -> Iterator[tuple[int, int, str]]:
        """Measure, yielding replies done, planned, and the next one; stops when time is up.

        A round is always complete, unless whoever iterates stops before.

        Raises:
            ModelError: plain decoding failed.
            UsageError: no prompt fits the context.
        """
        begun = clock()
        suite = self._suite
        if not self._tasks:
            raise UsageError("no prompt fits the context", "", "Use a larger --ctx.")
        prompt, greedy = self._prompt(self._tasks[0]), SamplingSettings(temperature=0.0)
        for method in list(self._methods.chosen):  # each is warm before any is measured
            self._reply(method, prompt, greedy, WARM_UP_TOKENS)
        each = len(self._tasks) * len(suite.temperatures) * len(self._methods.chosen)
        for number in range(suite.rounds):
            read = None
            for count, (task, temperature, method) in enumerate(self._order(number)):
                if task is not read:
                    self._read(task)
                    read = task
                text = f"{task.kind}, temperature {temperature:g}: {method.name}"
                yield number * each + count, suite.rounds * each, text
                self._measure(task, temperature, method, number)
            self._rounds = number + 1
            spent = clock() - begun
            if spent + spent / self._rounds > suite.seconds and self._rounds < suite.rounds:
                self._notes.append(
                    f"time was up after {self._rounds} of {suite.rounds} rounds "
                    f"({spent / 60:.0f} minutes)"
                )
                return

    def _order(self, number: int) -> Iterator[tuple[Task, float, Method]]:
        """Methods in turn on each prompt, with a different first method in each round."""
        methods = list(self._methods.chosen)
        for task in self._tasks:
            for temperature in self._suite.temperatures:
                for place in range(len(methods)):
                    yield task, temperature, methods[(place + number) % len(methods)]

    def _read(self, task: Task) -> None:
        """Cache the prompt, so that every method starts from the same keys and values."""
        plain = self._methods.chosen[0]
        self._reply(plain, self._prompt(task), SamplingSettings(temperature=0.0), 1)

    def _prompt(self, task: Task) -> list[int]:
        return list(self._session.template.prompt([Message("user", task.text)]).tokens)

    def _reply(
        self, method: Method, prompt: list[int], settings: SamplingSettings, max_tokens: int
    ) -> Outcome | None:
        try:
            return method.reply(prompt, settings, max_tokens)
        except ModelError as error:
            if method.name == PLAIN:
                raise
            self._notes.append(f"{method.name} was left out: {error}".splitlines()[0])
            self._methods.chosen.remove(method)
            return None

    def _measure(self, task: Task, temperature: float, method: Method, number: int) -> None:
        if method not in self._methods.chosen:
            return
        seed = 1000 * number + task.number
        settings = SamplingSettings(temperature=temperature, seed=seed)
        outcome = self._reply(method, self._prompt(task), settings, self._suite.max_tokens)
        if outcome is None or len(outcome.tokens) < 2:
            return
        counts: dict[str, Any] = {}
        if (told := outcome.statistics) is not None:
            counts = {
                "steps": told.steps - 1,
                "drafted": told.drafted,
                "accepted": told.accepted,
                "drafted_at": tuple(told.drafted_at_position),
                "accepted_at": tuple(told.accepted_at_position),
                "lengths": tuple(told.drafted_lengths),
                "accepted_lengths": tuple(told.accepted_lengths),
                "steps_by_shape": dict(told.steps_by_shape),
                "overhead_seconds": told.overhead_seconds,
            }
        run = Run(
            task.kind,
            task.number,
            temperature,
            method.name,
            number,
            tokens=len(outcome.tokens) - 1,
            seconds=outcome.seconds,
            token_ids=tuple(outcome.tokens),
            **counts,
        )
        self._runs.append(run)

    @property
    def bench(self) -> Bench:
        """Everything measured so far, in whole rounds if at least one is complete."""
        session, info = self._session, self._session.model.info
        rounds = max(self._rounds, 1)
        runs = tuple(run for run in self._runs if run.round < rounds)
        auto = self._methods.auto
        bandwidth = session.bandwidth
        return Bench(
            suite=self._suite.name,
            date=self._started.strftime("%Y-%m-%d %H:%M UTC"),
            model=info.name,
            quantization=info.quantization,
            parameters=info.parameters,
            device=info.device,
            backend=info.engine,
            threads=info.threads,
            methods=tuple(dict.fromkeys(method.name for method in self._methods.chosen)),
            kinds=tuple(dict.fromkeys(task.kind for task in self._tasks)),
            temperatures=self._suite.temperatures,
            rounds=rounds,
            max_tokens=self._suite.max_tokens,
            cost_seconds=dict(auto.costs.points) if auto else {},
            bytes_per_token=bytes_per_token(info, session.context.facts),
            bandwidth_bytes_per_second=bandwidth.bytes_per_second if bandwidth else None,
            bandwidth_source=bandwidth.source if bandwidth else None,
            streamed_bytes_per_token=info.streamed_bytes_per_token,
            disk_bytes_per_second=session.disk.bytes_per_second if session.disk else None,
            drafts=dict(self._methods.drafts),
            runs=_compared(runs),
            notes=tuple(self._notes),
        )


def _compared(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Mark the runs whose tokens equal those of plain decoding with the same seed."""
    plain = {
        (run.kind, run.prompt, run.temperature, run.round): run.token_ids
        for run in runs
        if run.method == PLAIN
    }
    return tuple(
        replace(
            run,
            same_tokens=run.token_ids
            == plain.get((run.kind, run.prompt, run.temperature, run.round)),
        )
        for run in runs
    )
