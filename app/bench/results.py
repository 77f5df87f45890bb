"""Results of a bench, and the statistics that summarize them."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.engine.metrics import wall
from decoding.events import Shape

PLAIN = "off"
AUTO = "auto"

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
    same_tokens: bool | None = None
    """Whether the reply equals that of plain decoding with the same seed."""
    judged_at: tuple[int, ...] = ()
    """Number of drafts that reached a position and were accepted up to the one before it."""
    turn: int = 0
    ttft_seconds: float | None = None
    """From the request to the first token, where the method read its prompt by itself."""
    answer: str = ""
    """A hash of the reply's tokens."""


@dataclass(frozen=True, slots=True)
class Speedup:
    """Decode rate over the plain rate of the same round: median, minimum and maximum of rounds.

    error: twice the standard error over the questions; None for fewer than three.
    """

    median: float
    least: float
    most: float
    error: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """What others measure of a method's answers to a kind of questions; None if it is not known.

    The first three follow Spec-Bench (evaluation/speed.py), acceptance_length NVIDIA's
    specdec_bench (metrics/specbench.py), for SPEED-Bench.
    """

    questions: int
    mean_accepted_tokens: float | None
    """Tokens of a target pass, the first of each answer aside."""
    end_to_end_speedup: float | None
    """Mean of the questions' tokens per second, reading the prompts included, over plain's."""
    acceptance_length: float | None
    """Mean over the questions of their tokens of a pass, the first of each answer included."""
    acceptance: float | None
    conditional_acceptance: list[float]
    """At each position, of the drafts that were accepted up to the one before."""
    ttft_seconds: float | None
    """Mean over the questions' first turns, whose prompts are read from their beginning."""
    decode_tokens_per_second: float | None


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
    questions: int = 0
    questions_sha256: str = ""
    """Of the file of questions."""
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

    @property
    def tells_latency(self) -> bool:
        """Whether methods read the prompts by themselves, as those of published suites."""
        return any(run.ttft_seconds is not None for run in self.runs)

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
        """Speedup over plain decoding in the same round, on the questions that both answered."""
        rounds = (self._paired(method, kind, temperature, number) for number in range(self.rounds))
        ratios = [ratio for units in rounds if (ratio := ratio_of(total(units)))]
        if not ratios:
            return None
        every = self._paired(method, kind, temperature) if method != PLAIN else []
        return Speedup(statistics.median(ratios), min(ratios), max(ratios), jackknife(every))

    def _paired(
        self, method: str, kind: str, temperature: float, number: int | None = None
    ) -> list[tuple[float, ...]]:
        """Sums of a method and of plain decoding, by question; number: of the round, None: all."""
        ours, plain = (
            _by_question(
                run for run in self.select(one, kind, temperature) if number in (None, run.round)
            )
            for one in (method, PLAIN)
        )
        return [(*sums(ours[key]), *sums(plain[key])) for key in ours if key in plain]

    def mean_error(self, method: str, temperature: float) -> float | None:
        """That of the mean speedup, as of Speedup; None if one of the kinds has none."""
        speedups = [self.speedup(method, kind, temperature) for kind in self.kinds]
        shares = [one.error / one.median for one in speedups if one and one.error is not None]
        mean = self.mean_speedup(method, temperature)
        if mean is None or len(shares) < len(self.kinds):
            return None
        return mean * math.hypot(*shares) / len(shares)

    def figures(self, method: str, kind: str | None, temperature: float) -> Figures:
        runs = self.select(method, kind, temperature)
        drafting = [run for run in runs if run.steps]
        questions = _by_question(runs)
        lengths = [
            sum(run.tokens + 1 for run in asked) / sum(run.steps + 1 for run in asked)
            for asked in questions.values()
            if all(run.steps for run in asked)
        ]
        first = [run.ttft_seconds for run in runs if run.ttft_seconds is not None and not run.turn]
        rates = [_whole_rate(runs), _whole_rate(self.select(PLAIN, kind, temperature))]
        return Figures(
            len(questions),
            _over(sum(run.tokens for run in drafting), sum(run.steps for run in drafting)),
            _over(*rates),
            statistics.fmean(lengths) if lengths else None,
            self.acceptance(method, temperature, kind),
            self.conditional_acceptance(method, kind, temperature),
            statistics.fmean(first) if first else None,
            _rate(runs),
        )

    def mean_speedup(self, method: str, temperature: float) -> float | None:
        """Geometric mean of the medians over all kinds; None if one is missing."""
        speedups = [self.speedup(method, kind, temperature) for kind in self.kinds]
        medians = [speedup.median for speedup in speedups if speedup is not None]
        if len(medians) < len(speedups) or not medians:
            return None
        return math.exp(statistics.fmean(map(math.log, medians)))

    def acceptance(
        self, method: str, temperature: float | None = None, kind: str | None = None
    ) -> float | None:
        runs = self.select(method, kind, temperature)
        return _over(sum(run.accepted for run in runs), sum(run.drafted for run in runs))

    def conditional_acceptance(
        self, method: str, kind: str | None = None, temperature: float | None = None
    ) -> list[float]:
        """At each position, share accepted of the drafts accepted up to the one before."""
        runs = self.select(method, kind, temperature)
        accepted, judged = (
            added(run.accepted_at for run in runs),
            added(run.judged_at for run in runs),
        )
        return [some / all_ for some, all_ in zip(accepted, judged, strict=False) if all_]

    def accepted_lengths(self, method: str, temperature: float | None = None) -> list[int]:
        runs = self.select(method, temperature=temperature)
        return added(run.accepted_lengths for run in runs)

    def steps_by_shape(self, method: str, temperature: float | None = None) -> dict[Shape, int]:
        total = Counter[Shape]()
        for run in self.select(method, temperature=temperature):
            total.update(run.steps_by_shape)
        return dict(total)

    def as_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "summary": self._summary(), **asdict(self)}

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
                "mean_speedup_error": self.mean_error(method, temperature),
                "overall": asdict(self.figures(method, None, temperature)),
                "kinds": {
                    kind: asdict(self.figures(method, kind, temperature)) for kind in self.kinds
                },
                "decode_tokens_per_second": self.rate(method, temperature=temperature),
                "acceptance": self.acceptance(method, temperature),
                "accepted_lengths": self.accepted_lengths(method, temperature),
                "steps_by_shape": self.steps_by_shape(method, temperature),
            }
            for method in self.methods
            for temperature in self.temperatures
        ]


def _rate(runs: Sequence[Run]) -> float | None:
    return _over(sum(run.tokens for run in runs), sum(run.seconds for run in runs))


def _over(count: float | None, all_: float | None) -> float | None:
    return count / all_ if count is not None and all_ else None


def _by_question(runs: Iterable[Run]) -> dict[tuple[str, int], list[Run]]:
    found = defaultdict[tuple[str, int], list[Run]](list)
    for run in runs:
        found[run.kind, run.prompt].append(run)
    return found


def _whole_rate(runs: Sequence[Run]) -> float | None:
    """Mean of the questions' rates from request to last token; None without such times."""
    if not runs or any(run.ttft_seconds is None for run in runs):
        return None
    return statistics.fmean(
        sum(run.tokens + 1 for run in asked)
        / sum(run.seconds + (run.ttft_seconds or 0.0) for run in asked)
        for asked in _by_question(runs).values()
    )


def sums(runs: Sequence[Run]) -> tuple[float, float]:
    """Tokens, and their seconds."""
    return sum(run.tokens for run in runs), sum(run.seconds for run in runs)


def ratio_of(sums: Sequence[float | None]) -> float | None:
    """Tokens over seconds; of twice or four times as many sums, ratios of these, and of those."""
    if len(sums) < 2:
        return sums[0] if sums else None
    return ratio_of([_over(*pair) for pair in zip(sums[::2], sums[1::2], strict=True)])


def total(units: Iterable[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip(*units, strict=True)]


_FEWEST_UNITS = 3


def jackknife(units: Sequence[Sequence[float]]) -> float | None:
    """Twice the standard error of the ratio of the units' sums, by leaving out one at a time."""
    if len(units) < _FEWEST_UNITS:
        return None
    every = total(units)
    left = ([all_ - one for all_, one in zip(every, unit, strict=True)] for unit in units)
    known = [ratio for rest in left if (ratio := ratio_of(rest)) is not None]
    return 2 * math.sqrt(len(known) - 1) * statistics.pstdev(known) if known else None


def added(rows: Iterable[Sequence[int]]) -> list[int]:
    """The sum of rows of counts, position by position; as long as the longest."""
    total: list[int] = []
    for row in rows:
        total += [0] * (len(row) - len(total))
        for place, count in enumerate(row):
            total[place] += count
    return total
