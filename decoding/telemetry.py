"""Counters and times of one reply, summed over its events (docs/reference/glossary.md)."""

import math
from dataclasses import dataclass, field

from decoding.events import Event, Prefill, Shape, Step

_MOST_BLOCKS = 8
_FEWEST_BLOCKS = 4


@dataclass(slots=True)
class BatchMeans:
    """Durations in seconds, averaged in four to eight blocks as long as the series allows.

    Their scatter shows the noise that lasts; the scatter of single durations would hide it.
    """

    count: int = 0
    total: float = 0.0
    _blocks: list[float] = field(default_factory=list[float])
    """Sums of complete blocks."""
    _size: int = 1
    """Durations of a block."""
    _open: float = 0.0
    """Sum of the incomplete block."""

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self._open += seconds
        if self.count % self._size:
            return
        self._blocks.append(self._open)
        self._open = 0.0
        if len(self._blocks) == _MOST_BLOCKS:
            pairs = zip(self._blocks[::2], self._blocks[1::2], strict=True)
            self._blocks = [first + second for first, second in pairs]
            self._size *= 2

    @property
    def error(self) -> float | None:
        """Standard error of the mean, relative to it; None for a short series."""
        count = len(self._blocks)
        if count < _FEWEST_BLOCKS or self.total <= 0.0:
            return None
        mean = sum(self._blocks) / count
        variance = sum((block - mean) ** 2 for block in self._blocks) / (count - 1)
        return math.sqrt(variance / count) / mean

    @property
    def noise(self) -> float | None:
        """The error that a mean over one second would have: it falls with the root of the time."""
        return None if self.error is None else self.error * math.sqrt(self.total)


@dataclass(slots=True)
class DrafterStatistics:
    """Counters of one drafter in one reply."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_seconds: float = 0.0


@dataclass(slots=True)
class Statistics:
    """Statistics of one reply; None if not measured. Times are in seconds."""

    started_at: float
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    completion_tokens: int = 0
    prefill_seconds: float | None = None
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    plain_steps: BatchMeans = field(default_factory=BatchMeans)
    """Steps without a draft that follow another such step; after a longer pass they are slower."""
    drafted_lengths: list[int] = field(default_factory=list[int])
    """Number of steps after the first by drafted tokens, from 0."""
    accepted_lengths: list[int] = field(default_factory=list[int])
    """Number of steps with a draft by accepted tokens, from 0."""
    steps_by_shape: dict[Shape, int] = field(default_factory=lambda: dict.fromkeys(Shape, 0))
    """Number of steps after the first by shape of the draft."""
    by_drafter: dict[str, DrafterStatistics] = field(default_factory=dict[str, DrafterStatistics])
    last_step: Step | None = None
    _first_at: float | None = None
    drafted_at_position: list[int] = field(default_factory=list[int])
    accepted_at_position: list[int] = field(default_factory=list[int])
    judged_at_position: list[int] = field(default_factory=list[int])
    """Number of drafts that reached a position and were accepted up to the one before it."""

    def add(self, event: Event) -> None:
        if isinstance(event, Prefill):
            self.prompt_tokens = event.total
            self.cached_prompt_tokens = event.cached
            self.prefill_seconds = event.seconds
        elif isinstance(event, Step):
            self._add_step(event)

    def _add_step(self, step: Step) -> None:
        self.steps += 1
        self.completion_tokens += len(step.tokens)
        self.draft_seconds += step.draft_seconds
        self.verify_seconds += step.verify_seconds
        if self._first_at is None:
            self._first_at = step.at
        else:
            _count(self.drafted_lengths, step.drafted)
            self.steps_by_shape[step.shape] += 1
        for empty in step.empty_drafts:
            self._drafter(empty.drafter).draft_seconds += empty.seconds
        before, self.last_step = self.last_step, step
        is_plain = step.passed == 1
        if step.drafter and not is_plain:
            self._add_draft(step)
        elif is_plain and before is not None and before.passed == 1:
            self.plain_steps.add(step.at - before.at)

    def _add_draft(self, step: Step) -> None:
        if step.drafted > 0:
            _count(self.accepted_lengths, step.accepted)
        self.drafted += step.drafted
        self.accepted += step.accepted
        missing = max(step.longest - len(self.drafted_at_position), 0)
        self.drafted_at_position += [0] * missing
        self.accepted_at_position += [0] * missing
        self.judged_at_position += [0] * missing
        for position in range(step.longest):
            self.drafted_at_position[position] += 1
            self.accepted_at_position[position] += position < step.accepted
            self.judged_at_position[position] += position <= step.accepted
        drafter = self._drafter(step.drafter)
        drafter.steps += 1
        drafter.drafted += step.drafted
        drafter.accepted += step.accepted
        drafter.draft_seconds += step.own_draft_seconds

    def _drafter(self, name: str) -> DrafterStatistics:
        return self.by_drafter.setdefault(name, DrafterStatistics())

    @property
    def drafted_share(self) -> float | None:
        """Share of the completion tokens that drafters supplied."""
        return self.accepted / self.completion_tokens if self.completion_tokens else None

    @property
    def acceptance(self) -> float | None:
        """Share of drafted tokens that were accepted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def accepted_by_position(self) -> list[float]:
        pairs = zip(self.accepted_at_position, self.drafted_at_position, strict=True)
        return [accepted / drafted for accepted, drafted in pairs]

    @property
    def tokens_per_step(self) -> float | None:
        """Completion tokens per target pass."""
        return self.completion_tokens / self.steps if self.steps else None

    @property
    def ttft_seconds(self) -> float | None:
        """Time from the request to the first token."""
        return None if self._first_at is None else self._first_at - self.started_at

    @property
    def decode_seconds(self) -> float | None:
        """Time from the first token to the last."""
        if self._first_at is None or self.last_step is None:
            return None
        return self.last_step.at - self._first_at

    @property
    def decode_tokens_per_second(self) -> float | None:
        seconds = self.decode_seconds
        return (self.completion_tokens - 1) / seconds if seconds else None

    @property
    def overhead_seconds(self) -> float | None:
        """Decoding time spent neither on drafting nor on target passes."""
        seconds = self.decode_seconds
        return None if seconds is None else seconds - self.draft_seconds - self.verify_seconds


def _count(counts: list[int], index: int) -> None:
    counts += [0] * (index + 1 - len(counts))
    counts[index] += 1
