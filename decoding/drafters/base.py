"""Bases of drafters: without a context, and with one that has to be caught up with the history."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from backends.base import Context, Logits
from decoding.draft import Draft, Drafter, KeepOn, PointMassLine, SampledLine, evidence_class
from decoding.joined_pass import forward
from decoding.prefill import common_prefix, prefill, reuse
from decoding.sampling.distribution import Distribution
from decoding.sampling.sampler import Sampler
from decoding.sampling.settings import SamplingSettings


@dataclass(slots=True)
class GrowingDraft:
    """Tokens so far; distributions stays empty for a deterministic drafter."""

    tokens: list[int] = field(default_factory=list[int])
    confidence: list[float] = field(default_factory=list[float])
    evidence: list[int] = field(default_factory=list[int])
    distributions: list[Distribution] = field(default_factory=list[Distribution])

    def __len__(self) -> int:
        return len(self.tokens)

    def add(
        self,
        token: int,
        confidence: float,
        q_draft: Distribution | None = None,
        evidence: int | None = None,
    ) -> None:
        """evidence: the class of the confidence if None."""
        self.tokens.append(token)
        self.confidence.append(confidence)
        self.evidence.append(evidence_class(confidence) if evidence is None else evidence)
        if q_draft is not None:
            self.distributions.append(q_draft)

    def goes_on(self, keep_on: KeepOn | None) -> bool:
        """Whether one more token is wanted after the last one."""
        return keep_on is None or keep_on(self.confidence[-1], self.evidence[-1])

    def done(self, drafter: str) -> Draft:
        """The draft, under the name of its drafter."""
        tokens = tuple(self.tokens)
        form = (
            SampledLine(tokens, tuple(self.distributions))
            if self.distributions
            else PointMassLine(tokens)
        )
        return Draft(form, drafter, tuple(self.confidence), tuple(self.evidence))


class Reader:
    """Reads the part of a history that a context lacks; the history may end with guessed tokens.

    The context may hold rejected tokens of the last draft, or lack accepted ones. Committed tokens
    are compared once, guessed ones each time. single_reads: the most tokens that are read one by
    one, as where a pass of another width than the drafting ones costs more.
    """

    def __init__(self, context: Context) -> None:
        self.single_reads = 0
        self._context = context
        self._agreed = 0
        self._committed = 0

    def begin(self, history: Sequence[int]) -> None:
        self._agreed = 0
        self._committed = len(history)

    def commit(self, history: Sequence[int]) -> None:
        self._committed = len(history)

    def backlog(self, history: Sequence[int]) -> int:
        held = common_prefix(self._context.tokens, history, self._agreed)
        return len(history) - self._context.rollback_to(min(held, len(history) - 1))

    def room(self, history: Sequence[int]) -> int:
        """Number of tokens for which the context has room after history."""
        return self._context.n_ctx - len(history)

    def refusal(self, history: Sequence[int], needed: int = 1) -> str:
        return full(self._context) if self.room(history) < needed else ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        if len(history) < self._context.n_ctx:
            for held, _ in self.rows(history, 0):
                yield held

    def rows(self, history: Sequence[int], n_logits: int = 1) -> Iterator[tuple[int, Logits]]:
        """Read all of history in chunks; yields (tokens held, logits), the last with n_logits rows.

        n_logits: 1, or 0 where none is asked for.
        """
        reuse(self._context, history, self._agreed)
        self._note()
        while 1 < len(history) - self._context.length <= self.single_reads:
            forward(self._context, history[self._context.length :][:1], 1)
        for held, rows in prefill(self._context, history, n_logits):
            self._note()
            self._hold(is_brief=held == len(history))
            yield held, rows

    def pending(self, history: Sequence[int], most: int) -> Sequence[int]:
        """Read history except for its last tokens, 1 to most of them, which are returned."""
        reuse(self._context, history, self._agreed)
        for _ in prefill(self._context, history[:-most], 0):
            pass
        self._note()
        self._hold(is_brief=True)
        return history[self._context.length :]

    def _hold(self, *, is_brief: bool) -> None:
        """Come back here after drafts, which are longer than what one pass can take back."""
        if self._context.length <= self._committed:
            self._context.checkpoint(is_brief=is_brief)

    def _note(self) -> None:
        self._agreed = min(self._context.length, self._committed)


def full(context: Context) -> str:
    """Reason shown for a drafter whose context is full."""
    return f"full: its context is {context.n_ctx:,} tokens"


ReaderT = TypeVar("ReaderT", bound=Reader)


class ReadsBacklog(Drafter, Generic[ReaderT]):
    """A drafter that reads what was emitted since its last proposal before the next one.

    Its context may hold rejected tokens of the last draft, or lack accepted ones, until the next
    proposal catches up. end_tokens: those that end a reply.
    """

    def __init__(
        self, name: str, reader: ReaderT, end_tokens: frozenset[int] = frozenset()
    ) -> None:
        self.name = name
        self.end_tokens = end_tokens
        self._reader = reader
        self._sampler = Sampler(SamplingSettings())

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._sampler = sampler
        self._reader.begin(history)

    def commit(self, history: Sequence[int]) -> None:
        self._reader.commit(history)

    def backlog(self, history: Sequence[int]) -> int:
        return self._reader.backlog(history)

    def refusal(self, history: Sequence[int]) -> str:
        return self._reader.refusal(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        return self._reader.read(history)
