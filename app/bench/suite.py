"""The bench's prompts and suites, also for a model that is read from disk."""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from backends.base import UsageError

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
