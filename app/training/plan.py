"""What training will cost here and whether it can pay, from a minute of measuring."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from app.wording import counted
from backends.base import DiskFullError, OutOfMemoryError
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


EPOCHS = 3
"""Times that training reads each answer. Heads got worse from the fifth on (DeepSpec, issue 84)."""

_TEST_SHARE = 0.15
"""Of the time, for the test: two thousand passes take five minutes with a model of 135M on two
cores (docs/how-it-works/training.md)."""

_LEAST_TESTED, _MOST_TESTED = 6, 60
"""Prompts of the test: one of each kind, and enough for two thousand passes."""

_TESTED_TOKENS = 128 * 2 * 3
"""Tokens that a prompt of the test is answered in: at two temperatures, with three drafters."""

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

    def cost(length: int) -> float:
        return costs.of_draft(length) + length * draw

    def spare(length: int) -> float:
        return sum(each**place for place in range(1, length + 1)) - cost(length)

    length = max(range(1, costs.largest), key=spare)
    return Needed(length, cost(length), each)


def usual(tokens: int, length: int) -> list[float]:
    """Conditional acceptance by place that so many trained tokens usually reach: an estimate."""
    first = _FIRST + _DOUBLING * math.log2(max(tokens, 1) / _FIRST_TOKENS)
    return [min(max(first, 0.0), _MOST_FIRST), *[_LATER] * (length - 1)]


@dataclass(frozen=True, slots=True)
class Rates:
    """What was measured here, with the model and the net in question.

    answers: tokens a second, of width answers side by side. step_seconds: of training, on
    step_tokens of answers.
    plain: tokens a second of one answer. draw: cost of a drafted token, in plain steps.
    """

    answers: float
    width: int
    step_seconds: float
    step_tokens: int
    plain: float
    draw: float


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes: token_bytes of a sample's token, kept_bytes of checkpoints, memory of training."""

    token_bytes: int
    kept_bytes: int
    memory_bytes: int
    free_disk: int
    free_memory: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. tokens: of answers, width at once. steps: of training. tested: prompts of the test.

    needed is None where no draft can pay. expected: accepted tokens of a draft of needed.length,
    first: of its first token; speedup: over plain decoding, at the best length; all estimates.
    is_steady: whether the timings of passes agreed.
    """

    method: Method
    tokens: int
    width: int
    steps: int
    tested: int
    generate_seconds: float
    train_seconds: float
    test_seconds: float
    disk_bytes: int
    memory_bytes: int
    needed: Needed | None
    first: float
    expected: float
    speedup: float
    is_steady: bool = True

    @property
    def pays(self) -> bool:
        return self.needed is not None and self.speedup > 1.0


def planned(method: Method, minutes: float, rates: Rates, room: Room, costs: CostModel) -> Plan:
    """The largest run that fits into the time and the disk.

    Raises:
        DiskFullError, OutOfMemoryError: not even the smallest one fits.
    """
    seconds = 60.0 * minutes
    one = _TESTED_TOKENS / rates.plain
    tested = min(max(int(_TEST_SHARE * seconds / one), _LEAST_TESTED), _MOST_TESTED)
    left = max(seconds - tested * one, seconds / 2)
    a_token = 1.0 / rates.answers + EPOCHS * rates.step_seconds / rates.step_tokens
    on_disk = max(room.free_disk // 2 - room.kept_bytes, 0) // room.token_bytes
    least = 2 * rates.step_tokens
    tokens = max(int(left / a_token), least)
    if on_disk < least:
        raise DiskFullError(
            "too little disk space to train",
            f"it takes {size_text(2 * (least * room.token_bytes + room.kept_bytes))}, half of it "
            f"to stay free; {size_text(room.free_disk)} are free",
            "Free some space, then repeat the command.",
        )
    if room.memory_bytes > room.free_memory:
        raise OutOfMemoryError(
            "too little memory to train",
            f"it takes {gigabytes(room.memory_bytes)}; {gigabytes(room.free_memory)} are free",
            "Close other programs, or choose a smaller model or --method hydra.",
        )
    tokens = min(tokens, on_disk)
    steps = max(round(EPOCHS * tokens / rates.step_tokens), 2)
    found = needed(costs, rates.draw)
    shares = usual(tokens, max(costs.largest - 1, 1))
    length = found.length if found else 1
    kept = [math.prod(shares[:place]) for place in range(1, length + 1)]
    return Plan(
        method, tokens, rates.width, steps, tested,
        tokens / rates.answers, steps * rates.step_seconds, tested * one,
        tokens * room.token_bytes + room.kept_bytes, room.memory_bytes, found,
        shares[0], sum(kept),
        predicted_speedup(lambda place: shares[place], costs, rates.draw), costs.is_steady,
    )  # fmt: skip


def in_words(plan: Plan) -> Iterator[str]:
    """What the run will cost, and what it has to reach and may reach."""
    stages = (
        ("answers of the model", plan.generate_seconds, counted(plan.tokens, "token")),
        ("training", plan.train_seconds, f"{counted(plan.steps, 'step')}, {plan.method}"),
        ("test", plan.test_seconds, f"{counted(plan.tested, 'prompt')} never trained on"),
    )
    for name, seconds, what in stages:
        yield f"  {name:<20}  {duration(seconds):>8}  {what}"
    disk, memory = size_text(plan.disk_bytes), gigabytes(plan.memory_bytes)
    yield f"  {disk} of disk until it ends, {memory} of memory"
    if not plan.is_steady:
        yield f"{BUSY}: what is to be reached may be another when it is not"
    if plan.needed is None:
        yield "to reach here: nothing does; even if all drafts were accepted, they would cost more"
    else:
        of = counted(plan.needed.length, "drafted token")
        each = f"acceptance {plan.needed.each:.2f} of each"
        yield f"to reach here: {plan.needed.total:.2f} accepted of {of} ({each})"
        first = f"acceptance {plan.first:.2f} of the first"
        yield f"usual with so much data: {plan.expected:.2f} ({first}), {plan.speedup:.2f}× plain,"
        yield "  an estimate from others' reports, not measured here"


def duration(seconds: float) -> str:
    """Such as 40 s, 12 min or 1 h 5 min."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
