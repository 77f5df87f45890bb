"""What a drafter proposes, and what every drafter offers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from backends.base import DeviceRow, Listener
from backends.base.tree import count_leaves
from decoding.events import Step
from decoding.sampler import Sampler
from decoding.sampling import Distribution, from_row
from decoding.shape import Shape, Siblings
from decoding.silence import Silence

KeepOn = Callable[[float, int], bool]
"""Asked after each token drawn, with its confidence and evidence: whether to draw one more."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed to follow a history.

    confidence: the probability the drafter itself gives that each token is right.
    distributions: the q_draft each token was drawn from, None for a deterministic drafter; a token
        that was certain among drawn ones has a point mass.
    evidence: for each token the class of what spoke for it before verification, such as the
        length of a match; tokens of one class are accepted about equally often.
    rows: the q_draft of each token where they stay on the device; there are no distributions then.
    tail: how many of the last tokens are certain and cost nothing, so that they may be cut off a
        draft that was drawn.
    parents: of a tree, the index of the token before each, -1 for the end of the history; None for
        a line. No two with one parent are alike, but for those drawn independently.
    siblings: how the tokens of a tree were drawn, None if they were not; of those drawn without
        replacement, distributions has the q_draft from which the first of them came.
    paths: of how many lines, drawn independently, this one was chosen.
    sources: who proposed each token, where the draft is put together from several drafters'.
    passengers: so many of the last tokens of a tree are computed with the others, and never kept.
    silences: who was asked before and had nothing to say.
    listener: told what the model finds likeliest after each token, kept or not, before the drafter
        is told what was kept.
    """

    tokens: tuple[int, ...]
    drafter: str
    confidence: tuple[float, ...]
    distributions: tuple[Distribution, ...] | None = None
    evidence: tuple[int, ...] = ()
    rows: tuple[DeviceRow, ...] | None = None
    tail: int = 0
    parents: tuple[int, ...] | None = None
    siblings: Siblings | None = None
    paths: int = 1
    sources: tuple[str, ...] = ()
    passengers: int = 0
    listener: Listener | None = None
    silences: tuple[Silence, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def drafted(self) -> int:
        """How many of its tokens may be kept."""
        return len(self.tokens) - self.passengers

    @property
    def is_drawn(self) -> bool:
        """Whether tokens before its tail were drawn at random, each from a q_draft."""
        return self.distributions is not None or self.rows is not None

    @property
    def shape(self) -> Shape:
        """Its form."""
        if not self.drafted:
            return Shape.NONE
        if self.parents is not None:
            return Shape.TREE
        return Shape.PATHS if self.paths > 1 else Shape.LINE

    @property
    def width(self) -> int:
        """Branches of a tree, or the paths a line was chosen from."""
        if self.parents is None:
            return self.paths
        return count_leaves(self.parents[: self.drafted])

    @property
    def body(self) -> int:
        """How many tokens stand before its tail."""
        return len(self.tokens) - self.tail

    def brought_over(self) -> "Draft":
        """The same draft with every q_draft in this process's memory."""
        if self.rows is None:
            return self
        found = tuple(from_row(row.probabilities()) for row in self.rows)
        return replace(self, distributions=found, rows=None)

    def first(self, count: int) -> "Draft":
        """The draft cut to its first count tokens, which lets go of certain tokens only."""
        is_lossless = not self.is_drawn or self.body <= count
        assert is_lossless, "a token drawn from q_draft is never thrown away"
        assert self.parents is None, "a tree is sent as it is"
        return replace(
            self,
            tokens=self.tokens[:count],
            confidence=self.confidence[:count],
            distributions=self.distributions and self.distributions[:count],
            evidence=self.evidence[:count],
            sources=self.sources[:count],
            tail=max(min(count, len(self)) - self.body, 0),
        )


NO_DRAFT = Draft((), "", ())


class Drafter(Protocol):
    """Guesses the next tokens. Catches up with the history lazily, so idling costs nothing."""

    @property
    def name(self) -> str:
        """How the drafter is called in statistics and on screen."""
        ...

    @property
    def is_free(self) -> bool:
        """Whether a proposal costs next to nothing and may be cut: some are made to learn from."""
        ...

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        """Start a reply to history, which need not continue the one before."""
        ...

    def backlog(self, history: Sequence[int]) -> int:
        """Tokens of history it would have to read before it can propose."""
        ...

    def refusal(self, history: Sequence[int]) -> str:
        """Why it cannot draft after history, such as a full context; empty while it can.

        Asked at every step, so that it reads and computes nothing.
        """
        ...

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Work the backlog off now, so that the next proposal need not; yields after each chunk."""
        ...

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        """At most limit tokens to follow history, or a tree that deep; empty for nothing to say.

        history is what begin or the last commit gave, or goes on from there with tokens that are
        only guessed, nothing of which may be kept. A drafter that draws one token after another
        asks keep_on after each, and hands on every token it drew.
        """
        ...

    def commit(self, history: Sequence[int]) -> None:
        """Take in the text as it is after verification, before the next proposal."""
        ...

    def observe(self, step: Step) -> None:
        """Learn what became of the last draft, its cost included, when its pass is done.

        A guess that extends a history is verified too where one drafter drafts for another, so
        what was accepted need not be committed.
        """
        ...


def refusal_of_all(drafters: Iterable[Drafter], history: Sequence[int]) -> str:
    """Why none of several drafters can draft after history; empty while one can."""
    found = [drafter.refusal(history) for drafter in drafters]
    return "; ".join(dict.fromkeys(found)) if all(found) else ""
