"""Runs a bench: every method on every prompt, interleaved, in several rounds."""

import datetime
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from app.bench.methods import Method, Methods, Outcome
from app.bench.results import PLAIN, Bench, Run
from app.bench.suites import Suite, Task, tasks
from app.engine.session import Session, bytes_per_token
from backends.base import ModelError, UsageError
from backends.base.safe_files import make_private_folder, private_opener
from backends.chat.chat_template import Prompt
from backends.chat.message import Message
from decoding.sampling.settings import SamplingSettings
from decoding.text import TextStream

WARM_UP_TOKENS = 16
"""Of one reply by each method, before any is measured."""

_WARM_UP = "Write a line about the sea."
"""No suite asks it: else the first question's prompt would have been read."""

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
    forms = [
        replace(
            suite,
            temperatures=suite.temperatures[:heats],
            prompts=min(prompts, suite.prompts or prompts),
            max_tokens=min(most, suite.max_tokens),
        )
        for prompts, heats, most in _SHORTER
    ]
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


def size_in_words(suite: Suite) -> str:
    listed = " and ".join(f"{one:g}" for one in suite.temperatures)
    return f"{len(tasks(suite))} prompts, up to {suite.max_tokens} tokens, temperature {listed}"


class Runner:
    """Measures a suite. unfinished: the folder of benches that were ended, None to keep nothing."""

    def __init__(
        self, session: Session, methods: Methods, suite: Suite, unfinished: Path | None = None
    ) -> None:
        self._session = session
        self._methods = methods
        self._suite = suite
        self._notes = list(methods.notes)
        self._tasks = self._fitting()
        self._runs: list[Run] = []
        self._rounds = 0
        self._started = datetime.datetime.now(datetime.UTC)
        self._unfinished = _Unfinished(unfinished, self._facts())

    def _facts(self) -> dict[str, object]:
        """All that two runs of a bench must have in common to be one."""
        session, info = self._session, self._session.model.info
        file = info.path.stat() if info.path.is_file() else None
        return {
            "suite": (self._suite, self._suite.sha256, len(self._tasks)),
            "methods": [method.name for method in self._methods.chosen],
            "model": (info, file and (file.st_size, file.st_mtime_ns)),
            "session": (session.options, session.context.facts.n_ctx),
        }

    def _fitting(self) -> list[Task]:
        """The questions whose conversations fit the context; others are noted."""
        n_ctx = self._session.context.facts.n_ctx
        sizes = {task: self._size(task) for task in tasks(self._suite)}
        left_out = Counter[str](task.kind for task, size in sizes.items() if size > n_ctx)
        for kind, count in left_out.items():
            needed = max(size for task, size in sizes.items() if task.kind == kind)
            self._notes.append(
                f"of {kind} {count} {'was' if count == 1 else 'were'} left out: "
                f"a context of {needed:,} tokens is needed for all"
            )
        fitting = [task for task, size in sizes.items() if size <= n_ctx]
        every, most = len(tasks(replace(self._suite, prompts=None))), self._suite.max_tokens
        self._notes.append(f"{len(fitting)} of {every} questions, up to {most:,} tokens each")
        return fitting

    def _size(self, task: Task) -> int:
        """Tokens of a conversation with answers as long as they may be."""
        said = [Message("user", turn) for turn in task.turns]
        turns = (self._session.template.prompt([one]).tokens for one in said)
        return sum(map(len, turns)) + len(said) * self._suite.max_tokens

    def run(self, clock: Callable[[], float] = time.perf_counter) -> Iterator[tuple[int, int, str]]:
        """Measure, yielding replies done, planned, and the next one; stops when time is up.

        A round is always complete, unless whoever iterates stops before.

        Raises:
            ModelError: plain decoding failed.
            UsageError: no prompt fits the context.
        """
        suite = self._suite
        if not self._tasks:
            raise UsageError("no prompt fits the context", "", "Use a larger --ctx.")
        begun = clock()
        self._runs += self._unfinished.runs()
        if self._runs:
            self._notes.append(
                f"{len(self._runs):,} answers are from before it was ended; what drafters had "
                "learned then is not"
            )
        prompt = self._session.template.prompt([Message("user", _WARM_UP)])
        for method in list(self._methods.chosen):  # each is warm before any is measured
            self._reply(method, prompt, SamplingSettings(temperature=0.0), WARM_UP_TOKENS)
        done = {(run.round, run.kind, run.prompt, run.temperature) for run in self._runs}
        places = [*product(self._tasks, suite.temperatures)]
        each = len(self._methods.chosen)
        for number in range(suite.rounds):
            for count, (task, temperature) in enumerate(places, start=number * len(places)):
                if (number, task.kind, task.number, temperature) in done:
                    continue
                for place, text in enumerate(self._asked(task, temperature, number)):
                    yield count * each + place, suite.rounds * len(places) * each, text
            self._rounds = number + 1
            spent = clock() - begun
            if spent + spent / self._rounds > suite.seconds and self._rounds < suite.rounds:
                self._notes.append(
                    f"time was up after {self._rounds} of {suite.rounds} rounds "
                    f"({spent / 60:.0f} minutes)"
                )
                return

    def forget(self) -> None:
        """Keep nothing of it for later: it is complete, or is to begin anew."""
        self._unfinished.remove()

    def _asked(self, task: Task, temperature: float, number: int) -> Iterator[str]:
        """Measure one question by all methods, with a different first one in each round."""
        if not self._suite.is_published:
            self._read(task)
        methods, before = list(self._methods.chosen), len(self._runs)
        first = number % len(methods)
        for method in [*methods[first:], *methods[:first]]:
            yield f"{task.kind}, temperature {temperature:g}: {method.name}"
            self._runs += self._measured(task, temperature, method, number)
        self._unfinished.add(self._runs[before:])

    def _read(self, task: Task) -> None:
        """Cache the prompt, so that every method starts from the same keys and values."""
        prompt = self._session.template.prompt([Message("user", task.turns[0])])
        self._reply(self._methods.chosen[0], prompt, SamplingSettings(temperature=0.0), 1)

    def _reply(
        self, method: Method, prompt: Prompt, settings: SamplingSettings, max_tokens: int
    ) -> Outcome | None:
        try:
            return method.reply(list(prompt.tokens), settings, max_tokens)
        except ModelError as error:
            if method.name == PLAIN:
                raise
            self._notes.append(f"{method.name} was left out: {error}".splitlines()[0])
            self._methods.chosen.remove(method)
            return None

    def _measured(
        self, task: Task, temperature: float, method: Method, number: int
    ) -> Iterator[Run]:
        """The runs of a conversation with a method, whose own answers are its earlier turns."""
        if method not in self._methods.chosen:
            return
        session, suite = self._session, self._suite
        settings = SamplingSettings(temperature=temperature, seed=1000 * number + task.number)
        if suite.is_published:
            method.empty()
        said: list[Message] = []
        for turn, text in enumerate(task.turns):
            said.append(Message("user", text))
            prompt = session.template.prompt(said)
            outcome = self._reply(method, prompt, settings, suite.max_tokens)
            if outcome is None:
                return
            if len(outcome.tokens) > 1:
                place = Run(task.kind, task.number, temperature, method.name, number, 0, 0.0)
                yield self._filled(replace(place, turn=turn), outcome)
            said.append(Message("assistant", self._text(prompt, outcome.tokens)))

    def _text(self, prompt: Prompt, tokens: list[int]) -> str:
        session = self._session
        stream = TextStream(session.model.tokenizer, prompt.stops, spell=session.speller(prompt))
        for token in tokens:
            stream.feed(token)
        stream.finish()
        return stream.text

    def _filled(self, run: Run, outcome: Outcome) -> Run:
        ends = self._session.model.tokenizer.end_tokens
        said = ",".join(str(token) for token in outcome.tokens if token not in ends)
        run = replace(
            run,
            tokens=len(outcome.tokens) - 1,
            seconds=outcome.seconds,
            ttft_seconds=outcome.ttft_seconds if self._suite.is_published else None,
            answer=hashlib.sha256(said.encode()).hexdigest()[:16],
        )
        if (told := outcome.statistics) is None:
            return run
        return replace(
            run,
            steps=told.steps - 1,
            drafted=told.drafted,
            accepted=told.accepted,
            drafted_at=tuple(told.drafted_at_position),
            accepted_at=tuple(told.accepted_at_position),
            judged_at=tuple(told.judged_at_position),
            lengths=tuple(told.drafted_lengths),
            accepted_lengths=tuple(told.accepted_lengths),
            steps_by_shape=dict(told.steps_by_shape),
            overhead_seconds=told.overhead_seconds,
        )

    @property
    def bench(self) -> Bench:
        """Everything measured so far, in whole rounds if at least one is complete."""
        session, info = self._session, self._session.model.info
        rounds = max(self._rounds, 1)
        runs = _compared([run for run in self._runs if run.round < rounds])
        auto = self._methods.auto
        bandwidth = session.bandwidth
        return Bench(
            suite=self._suite.name,
            questions_sha256=self._suite.sha256,
            questions=len(self._tasks),
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
            runs=runs,
            notes=tuple(self._notes),
        )


def _compared(runs: list[Run]) -> tuple[Run, ...]:
    """Mark the runs whose tokens equal those of plain decoding with the same seed."""

    def place(run: Run) -> tuple[object, ...]:
        return run.kind, run.prompt, run.turn, run.temperature, run.round

    plain = {place(run): run.answer for run in runs if run.method == PLAIN}
    return tuple(replace(run, same_tokens=run.answer == plain.get(place(run))) for run in runs)


_RUNS = TypeAdapter(list[Run])


class _Unfinished:
    """A file of one bench, without texts: a JSON line for each question that all answered."""

    def __init__(self, folder: Path | None, facts: Mapping[str, object]) -> None:
        """folder: None to keep nothing. facts: all that two runs of it must have in common."""
        text = json.dumps(facts, sort_keys=True, default=str)
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self._file = folder / f"{name}.jsonl" if folder else None

    def runs(self) -> Iterator[Run]:
        """What is there, without a line that was not written to its end."""
        lines = list[bytes]()
        with suppress(OSError):
            lines = self._file.read_bytes().split(b"\n") if self._file else []
        for line in lines:
            with suppress(ValidationError):
                yield from _RUNS.validate_json(line)

    def add(self, runs: list[Run]) -> None:
        """Keep what was measured; a failure is ignored, as the figures are in memory too."""
        if self._file is None:
            return
        with suppress(OSError):
            make_private_folder(self._file.parent)
            with open(self._file, "ab", opener=private_opener) as file:
                file.write(b"\n" + _RUNS.dump_json(runs))  # before it may be a half-written one

    def remove(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)
