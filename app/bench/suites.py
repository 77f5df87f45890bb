"""Suites: what a bench asks, and by which protocol; published ones are read from the user's copy.

Forms and protocols: Spec-Bench, https://github.com/hemingkx/Spec-Bench (evaluation/eval.py);
MT-Bench, https://github.com/lm-sys/FastChat (fastchat/llm_judge), as Spec-Bench asks it;
SPEED-Bench, https://huggingface.co/datasets/nvidia/SPEED-Bench and NVIDIA's examples/specdec_bench
in https://github.com/NVIDIA/Model-Optimizer.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import cast

from app.settings.catalogue import known
from app.values import items
from backends.base import UsageError

_BUILT_IN = Path(__file__).with_name("suite.jsonl")
"""Our own words, four questions of each of six kinds; the quick suite asks the first two."""


@dataclass(frozen=True, slots=True)
class Suite:
    """How much a bench measures; it stops between rounds once its seconds are used up.

    prompts: number of questions of each kind, None for all. file: where they are.
    """

    name: str
    prompts: int | None
    rounds: int
    max_tokens: int
    seconds: float
    temperatures: tuple[float, ...] = (0.0, 0.8)
    file: Path = _BUILT_IN
    origin: str = ""
    """What to download of a published suite, and from where."""

    @property
    def is_published(self) -> bool:
        """Whether each method reads the prompts by itself, which tells latency, and peers do too.

        The questions of the built-in suites are read once for all methods.
        """
        return self.file != _BUILT_IN

    @property
    def context(self) -> int:
        """Tokens that its longest conversation may take, if a token has three bytes."""
        each = self.max_tokens + _TEMPLATE
        sizes = [
            sum(len(turn.encode()) for turn in task.turns) // 3 + len(task.turns) * each
            for task in tasks(self)
        ]
        return max([_LEAST_CONTEXT, *sizes])

    @property
    def sha256(self) -> str:
        """Of the file of questions."""
        return hashlib.sha256(self.file.read_bytes()).hexdigest()


_LEAST_CONTEXT = 1024
"""Enough for the longest built-in prompt and its reply."""

_TEMPLATE = 128
"""Tokens around a turn, a template's own system prompt among them: 30 of the bundled model's."""

_SPEC, _SPEED = "spec-bench", "speed-bench"
SUITES = {"quick": Suite("quick", 2, 3, 128, 480.0), "full": Suite("full", 4, 5, 192, 7200.0)} | {
    name: Suite(name, None, 1, max_tokens, math.inf, (0.0,), file=Path(), origin=origin)
    for name, max_tokens, origin in (
        (_SPEC, 1024, "data/spec_bench/question.jsonl of github.com/hemingkx/Spec-Bench"),
        ("mt-bench", 1024, "llm_judge/data/mt_bench/question.jsonl of github.com/lm-sys/FastChat"),
        (_SPEED, 4096, "a split of huggingface.co/datasets/nvidia/SPEED-Bench, completed"),
    )
}


def suite_of(given: str, folder: Path) -> Suite:
    """A suite by its name, or one that asks a file's questions; folder: of published files.

    Raises:
        UsageError: there is no such suite, or its file is missing or of another form.
    """
    if given not in SUITES and Path(given).is_file():
        file = Path(given)
        is_speed = any("src_id" in row for _, row in _rows(file))
        form = SUITES[_SPEED if is_speed else _SPEC]
        return replace(form, name=file.name, file=file)
    suite = SUITES[known(given, SUITES, f"no suite or file {given!r}")]
    file = folder / f"{given}.jsonl" if suite.is_published else suite.file
    if not file.is_file():
        raise UsageError(
            f"the questions of {given} are missing",
            f"specchat brings none with it, and there is no {file}",
            f"Copy there {suite.origin}, or name your copy: --suite FILE.",
        )
    return replace(suite, name=given, file=file)


def limited(suite: Suite, questions: int | None, max_tokens: int | None) -> Suite:
    """A suite with less of what was typed.

    Raises:
        UsageError: it has not so much.
    """
    prompts, tokens = questions or suite.prompts, max_tokens or suite.max_tokens
    for option, wanted, most in (
        ("--questions", prompts, suite.prompts),
        ("--max-tokens", tokens, suite.max_tokens),
    ):
        if wanted and most and wanted > most:
            raise UsageError(f"{option} cannot be {wanted}", f"{suite.name} has at most {most}")
    return replace(suite, prompts=prompts, max_tokens=tokens)


@dataclass(frozen=True, slots=True)
class Task:
    """A question of a kind: what the user says, turn by turn."""

    kind: str
    number: int
    turns: tuple[str, ...]


_MT_TOPICS = frozenset(
    ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
)
_SPEC_KINDS = frozenset(("translation", "math_reasoning"))
"""Kinds of Spec-Bench that no other form has; it counts MT-Bench's topics as one kind."""


def tasks(suite: Suite) -> list[Task]:
    """The first questions of each kind, kinds by turns, so that an unfinished bench has all.

    Raises:
        UsageError: the file cannot be read, or has another form.
    """
    found = [
        task
        for task in _numbered(suite.file)
        if suite.prompts is None or task.number < suite.prompts
    ]
    return sorted(found, key=attrgetter("number"))


@cache
def _numbered(file: Path) -> tuple[Task, ...]:
    rows = list(_questions(file))
    is_spec = not _SPEC_KINDS.isdisjoint(kind for kind, _ in rows)
    topics, kinds, placed = Counter[str](), Counter[str](), list[tuple[int, str, tuple[str, ...]]]()
    for topic, turns in rows:
        placed.append((topics[topic], topic, turns))
        topics[topic] += 1
    found: list[Task] = []
    for _, topic, turns in sorted(placed, key=itemgetter(0)):
        kind = "mt_bench" if is_spec and topic in _MT_TOPICS else topic
        found.append(Task(kind, kinds[kind], turns))
        kinds[kind] += 1
    return tuple(found)


_Question = tuple[str, tuple[str, ...]]
"""Its category, and its turns."""


_UNKNOWN = "questions"
"""Kind of those without a category."""

_PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"
"""How turns begin that SPEED-Bench's script has not completed."""


def _questions(file: Path) -> Iterator[_Question]:
    for number, row in _rows(file):
        listed = items(row.get("turns", row.get("prompt")))  # prompt: as MT-Bench on the hub has it
        said = tuple(turn for turn in listed if isinstance(turn, str))
        if not said or len(said) < len(listed):
            raise _malformed(file, f"line {number} has no turns")
        if any(turn.startswith(_PLACEHOLDER) for turn in said):
            raise _malformed(file, f"line {number} has to be completed by SPEED-Bench's script")
        yield str(row.get("category") or _UNKNOWN), said


def _rows(file: Path) -> Iterator[tuple[int, dict[str, object]]]:
    """The objects of a file of JSON lines, each with the number of its line."""
    number = 0
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    row: object = json.loads(line)
                    if not isinstance(row, dict):
                        raise _malformed(file, f"line {number} is no JSON object")
                    yield number, cast(dict[str, object], row)
    except OSError as error:
        raise UsageError(f"cannot read {file}", error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _malformed(file, f"line {max(number, 1)} is no JSON") from error
    if not number:
        raise _malformed(file, "it is empty")


def _malformed(file: Path, why: str) -> UsageError:
    return UsageError(
        f"{file} is no file of questions",
        why,
        "It has a JSON object a line, with `category` and `turns`, a list of texts.",
    )
