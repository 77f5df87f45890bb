"""Results of a bench, and the statistics that summarize them."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.engine.metrics import wall
from decoding.events import Shape

PLAIN = "off"
AUTO = "auto"
ALWAYS = ", always "
"""Between drafters and the length of their drafts, in names of methods where it is fixed."""

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Run:
    kind: str
    prompt: int
    temperature: float
    method: str
    round: int
    tokens: int
    """Tokens decoded after the first one."""
    seconds: float
    """From the first token to the last."""
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_at: tuple[int, ...] = ()
    """Number of tokens drafted at each position of a draft."""
    accepted_at: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    """Number of steps by drafted tokens, from 0 up."""
    accepted_lengths: tuple[int, ...] = ()
    """Number of drafting steps by accepted tokens, from 0 up."""
    steps_by_shape: dict[Shape, int] = field(default_factory=dict[Shape, int])
    overhead_seconds: float | None = None
    """Time spent neither drafting nor in the target's passes."""
    token_ids: tuple[int, ...] = ()
    same_tokens: bool | None = None
    """Whether the reply equals that of plain decoding with the same seed."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """Decode rate over the plain rate of the same round: median, minimum and maximum of rounds."""

    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class DraftSeconds:
    """Seconds of drafting: for each drafted token, each token read before, and each draft."""

    draw: float
    read: float
    begin: float


@dataclass(frozen=True, slots=True)
class Bench:
    """All results of one bench. Rates are in tokens per second, sizes in bytes."""

    suite: str
    date: str
    model: str
    quantization: str
    parameters: int
    device: str
    backend: str
    threads: int
    methods: tuple[str, ...]
    """In the order shown; the first is plain decoding."""
    kinds: tuple[str, ...]
    temperatures: tuple[float, ...]
    rounds: int
    max_tokens: int
    cost_seconds: dict[int, float]
    """Seconds of a target pass, by its number of tokens."""
    bytes_per_token: int
    bandwidth_bytes_per_second: float | None
    bandwidth_source: str | None
    runs: tuple[Run, ...]
    streamed_bytes_per_token: int = 0
    """Of bytes_per_token, those read from disk."""
    disk_bytes_per_second: float | None = None
    drafts: dict[str, DraftSeconds] = field(default_factory=dict[str, DraftSeconds])
    """Measured cost of drafting, by method, where one drafter takes time."""
    notes: tuple[str, ...] = ()
    """Methods and prompts left out, with reasons, and remarks on the model."""

    @property
    def wall(self) -> float | None:
        return wall(
            self.bytes_per_token,
            self.bandwidth_bytes_per_second,
            self.streamed_bytes_per_token,
            self.disk_bytes_per_second,
        )

    def select(
        self, method: str, kind: str | None = None, temperature: float | None = None
    ) -> list[Run]:
        return [
            run
            for run in self.runs
            if run.method == method
            and kind in (None, run.kind)
            and temperature in (None, run.temperature)
        ]

    def rate(
        self, method: str, kind: str | None = None, temperature: float | None = None
    ) -> float | None:
        return _rate(self.select(method, kind, temperature))

    def speedup(self, method: str, kind: str, temperature: float) -> Speedup | None:
        """Speedup over plain decoding in the same round; None if either is missing."""
        ratios: list[float] = []
        for number in range(self.rounds):
            ours = _rate(_of_round(self.select(method, kind, temperature), number))
            plain = _rate(_of_round(self.select(PLAIN, kind, temperature), number))
            if ours and plain:
                ratios.append(ours / plain)
        if not ratios:
            return None
        return Speedup(statistics.median(ratios), min(ratios), max(ratios))

    def mean_speedup(self, method: str, temperature: float) -> float | None:
        """Geometric mean of the medians over all kinds; None if one is missing."""
        speedups = [self.speedup(method, kind, temperature) for kind in self.kinds]
        medians = [speedup.median for speedup in speedups if speedup is not None]
        if len(medians) < len(speedups) or not medians:
            return None
        return math.exp(statistics.fmean(map(math.log, medians)))

    def acceptance(self, method: str, temperature: float | None = None) -> float | None:
        runs = self.select(method, temperature=temperature)
        drafted = sum(run.drafted for run in runs)
        return sum(run.accepted for run in runs) / drafted if drafted else None

    def acceptance_by_position(self, method: str) -> list[float]:
        """Share of accepted tokens at each position of a draft."""
        runs = self.select(method)
        accepted = added(run.accepted_at for run in runs)
        drafted = added(run.drafted_at for run in runs)
        return [right / all_ for right, all_ in zip(accepted, drafted, strict=True) if all_]

    def lengths(self, method: str) -> list[int]:
        return added(run.lengths for run in self.select(method))

    def accepted_lengths(self, method: str, temperature: float | None = None) -> list[int]:
        """Number of drafting steps by accepted tokens, from 0 up."""
        runs = self.select(method, temperature=temperature)
        return added(run.accepted_lengths for run in runs)

    def steps_by_shape(self, method: str, temperature: float | None = None) -> dict[Shape, int]:
        total = Counter[Shape]()
        for run in self.select(method, temperature=temperature):
            total.update(run.steps_by_shape)
        return dict(total)

    def as_json(self) -> dict[str, Any]:
        whole = asdict(self)
        for run in whole["runs"]:
            del run["token_ids"]
        return {"schema": SCHEMA, "summary": self._summary(), **whole}

    def _summary(self) -> list[dict[str, Any]]:
        return [
            {
                "method": method,
                "temperature": temperature,
                "speedup": {
                    kind: asdict(speedup)
                    if (speedup := self.speedup(method, kind, temperature))
                    else None
                    for kind in self.kinds
                },
                "mean_speedup": self.mean_speedup(method, temperature),
                "decode_tokens_per_second": self.rate(method, temperature=temperature),
                "acceptance": self.acceptance(method, temperature),
                "accepted_lengths": self.accepted_lengths(method, temperature),
                "steps_by_shape": self.steps_by_shape(method, temperature),
            }
            for method in self.methods
            for temperature in self.temperatures
        ]


def _of_round(runs: Iterable[Run], number: int) -> list[Run]:
    return [run for run in runs if run.round == number]


def _rate(runs: Sequence[Run]) -> float | None:
    seconds = sum(run.seconds for run in runs)
    return sum(run.tokens for run in runs) / seconds if seconds > 0 else None


def added(rows: Iterable[Sequence[int]]) -> list[int]:
    """The sum of rows of counts, position by position; as long as the longest."""
    total: list[int] = []
    for row in rows:
        total += [0] * (len(row) - len(total))
        for place, count in enumerate(row):
            total[place] += count
    return total
