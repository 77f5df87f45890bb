"""Runs a bench: every method on every prompt, interleaved, in several rounds."""

import datetime
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from app.bench.methods import Method, Methods, Outcome
from app.bench.results import PLAIN, Bench, Run
from app.bench.suite import WARM_UP_TOKENS, Suite, Task, tasks
from app.engine.session import Session, bytes_per_token
from backends.base import ModelError, UsageError
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings


class Runner:
    """Collects runs, which can be summarized at any time."""

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
