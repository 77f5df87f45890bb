"""Counts and times of one reply, added up from its events. Words are defined in docs/words.md."""

from dataclasses import dataclass, field

from decoding.events import Event, Prefill, Step


@dataclass(slots=True)
class DrafterStatistics:
    """What one drafter proposed, what stood, and what it cost."""

    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    draft_seconds: float = 0.0


@dataclass(slots=True)
class Statistics:
    """Figures of one reply; those that were not measured are None. Times in seconds."""

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
    plain_steps: int = 0
    """Steps with nothing drafted that follow one such: after a longer pass they are slower."""
    plain_step_seconds: float = 0.0
    drafted_lengths: list[int] = field(default_factory=list[int])
    """Steps after the first by the number of tokens drafted, from none up."""
    by_drafter: dict[str, DrafterStatistics] = field(default_factory=dict[str, DrafterStatistics])
    _last_was_plain: bool = False
    _first_at: float | None = None
    _last_at: float = 0.0
    _drafted_at_position: list[int] = field(default_factory=list[int])
    _accepted_at_position: list[int] = field(default_factory=list[int])

    def add(self, event: Event) -> None:
        """Take one event into account."""
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
            self.drafted_lengths += [0] * (step.drafted + 1 - len(self.drafted_lengths))
            self.drafted_lengths[step.drafted] += 1
        self._last_at = step.at
        follows_plain, self._last_was_plain = self._last_was_plain, step.passed == 1
        if step.passed == 1:
            if follows_plain and step.seconds > 0.0:
                self.plain_steps += 1
                self.plain_step_seconds += step.seconds
            return
        self.drafted += step.drafted
        self.accepted += step.accepted
        missing = max(step.longest - len(self._drafted_at_position), 0)
        self._drafted_at_position += [0] * missing
        self._accepted_at_position += [0] * missing
        for position in range(step.longest):
            self._drafted_at_position[position] += 1
            self._accepted_at_position[position] += position < step.accepted
        drafter = self.by_drafter.setdefault(step.drafter, DrafterStatistics())
        drafter.steps += 1
        drafter.drafted += step.drafted
        drafter.accepted += step.accepted
        drafter.draft_seconds += step.draft_seconds

    @property
    def acceptance(self) -> float | None:
        """Accepted of drafted tokens."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def accepted_by_position(self) -> list[float]:
        """For each place in a draft, the share of tokens drafted there that were accepted."""
        pairs = zip(self._accepted_at_position, self._drafted_at_position, strict=True)
        return [accepted / drafted for accepted, drafted in pairs]

    @property
    def drafted_at_position(self) -> list[int]:
        """How often a token was drafted at each place in a draft."""
        return list(self._drafted_at_position)

    @property
    def accepted_at_position(self) -> list[int]:
        """How often the token drafted at each place was accepted."""
        return list(self._accepted_at_position)

    @property
    def tokens_per_step(self) -> float | None:
        """Completion tokens per target pass."""
        return self.completion_tokens / self.steps if self.steps else None

    @property
    def ttft_seconds(self) -> float | None:
        """From the request to the first token."""
        return None if self._first_at is None else self._first_at - self.started_at

    @property
    def decode_seconds(self) -> float | None:
        """From the first token to the last."""
        return None if self._first_at is None else self._last_at - self._first_at

    @property
    def decode_tokens_per_second(self) -> float | None:
        """The decode rate: tokens after the first, per second of decoding."""
        seconds = self.decode_seconds
        return (self.completion_tokens - 1) / seconds if seconds else None

    @property
    def overhead_seconds(self) -> float | None:
        """Decoding time that was neither drafting nor the target's passes."""
        seconds = self.decode_seconds
        return None if seconds is None else seconds - self.draft_seconds - self.verify_seconds
