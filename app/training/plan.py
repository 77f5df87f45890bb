"""What training will cost here and whether it can pay, from a minute of measuring."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from operator import mul

from app.wording import counted
from backends.base import DiskFullError, OutOfMemoryError, UsageError
from decoding.estimation.cost import BUSY, CostModel
from decoding.planning.draft_length import break_even, predicted_speedup
from models.byte_sizes import gigabytes, size_text


class Method(StrEnum):
    """auto: the first of the others that suits the model and its engine."""

    AUTO = "auto"
    EAGLE3 = "eagle3"
    HYDRA = "hydra"
    MEDUSA = "medusa"
    DISTIL = "distil"
    MTP = "mtp"


class Stage(StrEnum):
    GENERATE = "generate"
    TRAIN = "train"
    TEST = "test"

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {Stage.GENERATE: "answers of the model", Stage.TRAIN: "training", Stage.TEST: "testing"}

TRAINED = "trained"
"""Name of what was trained, in the test."""

_EPOCHS = 3
"""Times that training reads each answer. Heads got worse from the fifth on (DeepSpec, issue 84)."""

_TEST_SHARE = 0.15
"""Of the time, for the test: two thousand passes take five minutes with a model of 135M on two
cores (docs/how-it-works/training.md)."""

_LEAST_TESTED, _MOST_TESTED = 2, 60
"""Prompts of the test: fewer tell no error, and so many are enough for two thousand passes."""

_TESTED_TOKENS, _TESTED_DEPTH = 128 * 2, 3
"""Tokens that each of the test's drafters answers a prompt in, at two temperatures, and those of a
draft: what was trained and n-grams draft before nearly every pass, lookup seldom."""

_FIRST, _FIRST_TOKENS, _DOUBLING, _MOST_FIRST = 0.51, 340_000, 0.03, 0.8
"""Acceptance of a head's first token by the tokens that it was trained on. An earlier pilot: a
model of 135M, 340,000 tokens, 0.50 to 0.52. Others report for models of 3B to 30B 0.54 to 0.60 with
some tens of millions, about 0.8 with a billion (vLLM speculators 610, vLLM 24243, DSpark's paper):
0.03 for each doubling."""

_LATER = 0.5
"""Acceptance of each further token, given that all before it were accepted: 0.50 to 0.53 in the
cumulative shares that speculators 610 and the pilot report."""


@dataclass(frozen=True, slots=True)
class Needed:
    """What drafts must reach here to be no slower than plain decoding.

    length: of the draft that asks for least. total: tokens of it that are accepted, the sum of its
    cumulative acceptances. each: acceptance of each token, if alike, given those before it are.
    """

    length: int
    total: float
    each: float


def needed(costs: CostModel, draw: float) -> Needed | None:
    """By this machine's costs of passes; None where even accepting all would not pay.

    draw: cost of a drafted token, in plain steps.
    """
    each = break_even(costs, draw)
    if each == math.inf:
        return None

    kept = list(accumulate(each**place for place in range(1, costs.largest)))

    def spare(length: int) -> float:
        return kept[length - 1] - costs.of_draft(length) - length * draw

    length = max(range(1, costs.largest), key=spare)
    return Needed(length, kept[length - 1], each)


def usual(tokens: int, place: int) -> float:
    """Conditional acceptance that so many trained tokens usually reach at a place: an estimate."""
    first = _FIRST + _DOUBLING * math.log2(max(tokens, 1) / _FIRST_TOKENS)
    return _LATER if place else min(max(first, 0.0), _MOST_FIRST)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured here, with the model and the net in question.

    answers: tokens a second, of width answers side by side. step_seconds: of training, on
    step_tokens of answers. plain: tokens a second of one answer. draw: cost of a drafted token, in
    plain steps. Bytes: token_bytes of a sample's token, kept_bytes of checkpoints, memory_bytes of
    training.
    """

    answers: float
    width: int
    step_seconds: float
    step_tokens: int
    plain: float
    draw: float
    token_bytes: int
    kept_bytes: int
    memory_bytes: int
    free_disk: int
    free_memory: int


@dataclass(frozen=True, slots=True)
class Expected:
    """Estimates. first, total: accepted of the first token, and of a draft of the needed length.

    speedup: over plain decoding, at the best length.
    """

    first: float
    total: float
    speedup: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. tokens: of answers, width at once. steps: of training. tested: prompts of the test.

    needed is None where no draft can pay. is_steady: whether the timings of passes agreed.
    """

    method: Method
    tokens: int
    width: int
    steps: int
    tested: int
    seconds: Mapping[Stage, float]
    disk_bytes: int
    memory_bytes: int
    needed: Needed | None
    expected: Expected
    is_steady: bool = True

    @property
    def pays(self) -> bool:
        """Whether it is expected to; what a busy machine tells is not believed."""
        return self.is_steady and self.needed is not None and self.expected.speedup > 1.0


def planned(method: Method, minutes: float, here: Measured, costs: CostModel) -> Plan:
    """The largest run that fits into the time and the disk.

    Raises:
        DiskFullError, OutOfMemoryError, UsageError: not even the smallest one fits.
    """
    seconds, depth = 60.0 * minutes, min(_TESTED_DEPTH, costs.largest - 1)
    passes = 3.0 + 2.0 * costs.of_draft(depth) + depth * here.draw  # of a token kept each, at most
    a_test = _TESTED_TOKENS * passes / here.plain
    tested = min(max(int(_TEST_SHARE * seconds / a_test), _LEAST_TESTED), _MOST_TESTED)
    left = seconds - tested * a_test
    a_token = 1.0 / here.answers + _EPOCHS * here.step_seconds / here.step_tokens
    on_disk = max(here.free_disk // 2 - here.kept_bytes, 0) // here.token_bytes
    least = 2 * here.step_tokens
    if left < least * a_token:
        needs = math.ceil((least * a_token + tested * a_test) / 6.0) / 10
        raise UsageError(
            f"{minutes:g} min are too few to train with this model",
            f"the shortest training and its test take {needs:g} min here",
            f"Give it more: --minutes {needs:g}",
        )
    if on_disk < least:
        raise DiskFullError(
            "too little disk space to train",
            f"it takes {size_text(2 * (least * here.token_bytes + here.kept_bytes))}, half of it "
            f"to stay free; {size_text(here.free_disk)} are free",
            "Free some space, then repeat the command.",
        )
    if here.memory_bytes > here.free_memory:
        raise OutOfMemoryError(
            "too little memory to train",
            f"it takes {gigabytes(here.memory_bytes)}; {gigabytes(here.free_memory)} are free",
            "Close other programs, or choose a smaller model or --method hydra.",
        )
    tokens = min(int(left / a_token), on_disk)
    steps = max(round(_EPOCHS * tokens / here.step_tokens), 2)
    spent = (tokens / here.answers, steps * here.step_seconds, tested * a_test)
    found = needed(costs, here.draw)
    shares = [usual(tokens, place) for place in range(found.length if found else 1)]
    speedup = predicted_speedup(lambda place: usual(tokens, place), costs, here.draw)
    return Plan(
        method, tokens, here.width, steps, tested, dict(zip(Stage, spent, strict=True)),
        tokens * here.token_bytes + here.kept_bytes, here.memory_bytes, found,
        Expected(shares[0], sum(accumulate(shares, mul)), speedup), costs.is_steady,
    )  # fmt: skip


def in_words(plan: Plan) -> Iterator[str]:
    """What the run will cost, and what it has to reach and may reach."""
    amounts = (
        counted(plan.tokens, "token"),
        f"{counted(plan.steps, 'step')}, {plan.method}",
        f"{counted(plan.tested, 'prompt')} never trained on",
    )
    for (stage, seconds), amount in zip(plan.seconds.items(), amounts, strict=True):
        yield f"  {stage.words:<20}  {duration(seconds):>8}  {amount}"
    disk, memory = size_text(plan.disk_bytes), gigabytes(plan.memory_bytes)
    yield f"  {disk} of disk until it ends, {memory} of memory"
    if not plan.is_steady:
        yield f"{BUSY}: what is to be reached may be another when it is not"
    if plan.needed is None:
        yield "to reach here: nothing does; even if all drafts were accepted, they would cost more"
        return
    of = counted(plan.needed.length, "drafted token")
    each = f" (acceptance {plan.needed.each:.2f} of each)" if plan.needed.length > 1 else ""
    yield f"to reach here: {plan.needed.total:.2f} accepted of {of}{each}"
    usually = plan.expected
    first = f"acceptance {usually.first:.2f} of the first"
    yield f"usual with so much data: {usually.total:.2f} ({first}), {usually.speedup:.2f}× plain,"
    yield "  an estimate from others' reports, not measured here"


def duration(seconds: float) -> str:
    """Such as 40 s, 12 min or 1 h 5 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
