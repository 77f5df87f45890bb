"""The bench's prompts and suites."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

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
    """One prompt of a kind."""

    kind: str
    number: int
    text: str


def tasks(suite: Suite) -> list[Task]:
    """The prompts of a suite, kind by kind."""
    chosen: list[Task] = []
    for entry in tomllib.loads(_FILE.read_text(encoding="utf-8"))["prompt"]:
        number = sum(task.kind == entry["kind"] for task in chosen)
        if number < suite.prompts:
            chosen.append(Task(entry["kind"], number, entry["text"]))
    return chosen
