"""Soak test: thousands of requests to one process must not leak memory, files or threads.

Run: uv run python -m scripts.campaigns.soak [--requests N] [--seed N] [--growth PERCENT]

It ends with 1 if something grows.

One engine answers, as in the app: questions of mixed length in conversations that begin anew now
and then, answers of mixed length, some stopped on the way, with drafters of every kind that change.
Memory is what belongs to this process alone; it is compared after the first hundred requests and at
the end, each time as the median of readings after several requests, drafters off.
"""

import argparse
import contextlib
import ctypes
import gc
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from app.chat.conversation import Conversation
from app.engine.answer import Answer
from app.engine.engine import Engine
from app.engine.reply import Request
from app.engine.status import Phase
from app.loading.session_options import SessionOptions
from app.paths import HOME_VARIABLE, Paths
from app.settings.catalogue import variable_of
from decoding.sampling.settings import SamplingSettings
from scripts.models.counting_model import make

ALLOCATOR = "PYTHONMALLOC"
"""Variable of Python's allocator; its own takes memory by the megabyte: set it to malloc."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a process holds. memory: bytes that are its own alone, files that it maps left out."""

    memory: int
    files: int
    threads: int
    children: int

    @classmethod
    def now(cls) -> Self:
        """At this moment, without what Python and the C library only keep for later."""
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):  # glibc alone has it
            ctypes.CDLL(None).malloc_trim(0)
        process = psutil.Process()
        files = process.num_fds() if hasattr(process, "num_fds") else len(process.open_files())
        children = len(process.children(recursive=True))
        return cls(_own_memory(process), files, process.num_threads(), children)

    def __str__(self) -> str:
        return (
            f"{self.memory / 1e6:.2f} MB, {self.files} files, {self.threads} threads, "
            f"{self.children} children"
        )


def _own_memory(process: psutil.Process) -> int:
    """Bytes that no file backs, where the system tells them apart.

    Pages of libraries are a process's alone only while no child maps them: 5 MB of a server here.
    """
    if not sys.platform.startswith("linux"):
        return process.memory_full_info().uss
    return sum(area.anonymous for area in process.memory_maps())


def middle(readings: Iterable[Held]) -> Held:
    """The median of memory, and of the rest what most readings tell."""
    readings = list(readings)
    return Held(
        statistics.median_low(one.memory for one in readings),
        statistics.mode(one.files for one in readings),
        statistics.mode(one.threads for one in readings),
        statistics.mode(one.children for one in readings),
    )


def grown(before: Held, after: Held, most_growth: float) -> list[str]:
    """What a process holds more of than before. most_growth: of its memory, as a share."""
    growth = after.memory / before.memory - 1
    faults = [f"memory grew by {100 * growth:.2f} %"] if growth >= most_growth else []
    return faults + [
        f"{name}: {getattr(before, name)} before, {getattr(after, name)} after"
        for name in ("files", "threads", "children")
        if getattr(after, name) > getattr(before, name)
    ]


_FIRST = 104
"""Requests before the first reading: every drafter has drafted."""

_READINGS = 9
_CONTEXT = 2048
_EACH = 25
"""Requests with each drafter: a change takes as long as many answers of a tiny model."""

_ROUNDS = 2
"""Of all drafters between two readings: what the one before leaves differs by some per cent."""

_LAST = 5
"""Readings of which the median is what the process holds at the end."""

_PROMPT_MEGABYTES = 1
"""For copies of prompt caches: as many as that are made before the first reading."""

_PATIENCE_SECONDS = 120.0


class Soak:
    """An engine and who talks to it."""

    def __init__(self, engine: Engine, drafters: list[str], seed: int) -> None:
        self._engine = engine
        self._drafters = drafters
        self._random = random.Random(seed)
        self._conversation = Conversation()
        self.tokens = 0
        self.stopped = 0
        self.failed: list[str] = []

    def run(self, requests: int, each: int) -> None:
        """Ask so many questions; drafters change after each so many of them, in turn."""
        for count in range(requests):
            if count % each == 0:
                self._drafters.append(self._drafters.pop(0))
                self._engine.set_draft(self._drafters[0])
            self._one()

    def fill(self) -> None:
        """Use all of the context once: its memory is the process's own from then on."""
        self._ask("1 " * (_CONTEXT // 2 - 100), 64)
        self._conversation.turns.clear()

    def held(self) -> Held:
        """The median of readings after requests of one kind, drafters off."""
        self._engine.set_draft("off")
        readings: list[Held] = []
        for _ in range(_READINGS):
            self._conversation.turns.clear()
            self._ask("once more", 16)
            readings.append(Held.now())
        return middle(readings)

    def _one(self) -> None:
        chosen = self._random
        if chosen.random() < 0.25:
            self._conversation.turns.clear()
        words = chosen.choice((1, 2, 5, 20, 60))
        question = " ".join(str(chosen.randrange(1000)) for _ in range(words))
        self._ask(question, chosen.choice((2, 8, 24, 64)), stops=chosen.random() < 0.1)

    def _ask(self, question: str, most: int, *, stops: bool = False) -> None:
        conversation = self._conversation
        conversation.add("user", question)
        settings = SamplingSettings(temperature=self._random.choice((0.0, 0.8)), seed=1)
        answer = self._engine.ask(Request(conversation, settings, most))
        if stops:
            answer.wait(self._random.uniform(0.0, 0.02))
            answer.stop()
            self.stopped += 1
        if not answer.wait(_PATIENCE_SECONDS):
            raise TimeoutError(f"no answer after {_PATIENCE_SECONDS:.0f} s")
        self._heard(answer)

    def _heard(self, answer: Answer) -> None:
        if answer.error is not None:
            self.failed.append(str(answer.error))
        self.tokens += len(answer.token_ids)
        del self._conversation.turns[: answer.dropped]
        if answer.text:
            self._conversation.add("assistant", answer.text)
        else:
            self._conversation.turns.pop()


def soak(requests: int, seed: int, folder: Path, most_growth: float) -> list[str]:
    """Print figures, and return what grew or failed."""
    target, drafter = (
        make(folder / "target.gguf", has_template=False),
        make(folder / "drafter.gguf", layers=1),
    )
    drafters = [
        "auto", "lookup", "retrieval", "ngram", "lookahead", "self:q8_0", str(drafter),
        f"cascade(lookup,{drafter})", f"vote(lookup,{drafter})", f"tree({drafter})",
        f"paths({drafter})", f"lookup,ngram,{drafter}", "off",
    ]  # fmt: skip
    options = SessionOptions(str(target), "off", "llamacpp", ctx=_CONTEXT, threads=1)
    engine = Engine(options, Paths.of_this_user())
    engine.start()
    started = time.monotonic()
    try:
        while engine.status.phase is Phase.LOADING:
            time.sleep(0.01)
        if engine.status.error is not None:
            raise engine.status.error
        soaked = Soak(engine, drafters, seed)
        soaked.fill()
        soaked.run(_FIRST, _FIRST // len(drafters))
        before = soaked.held()
        print(f"after the first {_FIRST}: {before}", flush=True)
        readings: list[Held] = []
        between = _ROUNDS * _EACH * len(drafters)
        for done in range(0, requests, between):
            count = min(between, requests - done)
            soaked.run(count, _EACH)
            readings.append(soaked.held())
            print(f"after {done + count:,}: {readings[-1]}", flush=True)
        after = middle(readings[-_LAST:])
    finally:
        engine.close(10.0)
    seconds = time.monotonic() - started
    growth = after.memory / before.memory - 1
    print(
        f"{requests:,} requests, {soaked.tokens:,} tokens, {soaked.stopped} stopped, "
        f"{seconds:.0f} s"
    )
    print(f"at the end: {after}; memory {100 * growth:+.2f} %")
    return list(dict.fromkeys(soaked.failed)) + grown(before, after, most_growth)


def main() -> None:
    """Soak as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--growth", type=float, default=1.0, help="per cent that is too much")
    given = parser.parse_args()
    if ALLOCATOR not in os.environ:
        environment = os.environ | {ALLOCATOR: "malloc"}
        command = [sys.executable, "-m", "scripts.campaigns.soak", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[HOME_VARIABLE] = str(Path(folder, "home"))
        os.environ[variable_of("prompt_memory")] = str(_PROMPT_MEGABYTES)
        faults = soak(given.requests, given.seed, Path(folder), given.growth / 100)
    for fault in faults:
        print(f"FAULT: {fault}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
