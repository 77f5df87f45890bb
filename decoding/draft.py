"""Drafts, their forms, which determine the rule, and the interface of the drafters."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from backends.base import DeviceRow, Listener
from backends.base.parent_array import count_leaves
from decoding.events import EmptyDraft, Rule, Shape, Step
from decoding.sampling.distribution import Distribution, from_row
from decoding.sampling.sampler import Sampler

# Forms of a draft: its tokens, how they hang together, and how they were chosen.
#
# The form of a draft determines the rule that verifies it.


@dataclass(frozen=True, slots=True)
class PointMassLine:
    """Consecutive tokens, each certain given those before it."""

    rule: ClassVar[Rule] = Rule.SAMPLE_MATCH
    is_tree: ClassVar[bool] = False
    window_tokens: ClassVar[int] = 0
    width: ClassVar[int] = 1

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SampledLine:
    """Consecutive tokens, each sampled from its q_draft; a certain one has a point mass.

    width: number of lines, sampled independently, from which this one was selected.
    """

    rule: ClassVar[Rule] = Rule.BLOCK
    is_tree: ClassVar[bool] = False
    window_tokens: ClassVar[int] = 0

    tokens: tuple[int, ...]
    distributions: tuple[Distribution, ...]
    width: int = 1


@dataclass(frozen=True, slots=True)
class DeviceLine:
    """Consecutive sampled tokens whose q_draft rows stay on the device."""

    rule: ClassVar[Rule] = Rule.BLOCK
    is_tree: ClassVar[bool] = False
    window_tokens: ClassVar[int] = 0
    width: ClassVar[int] = 1

    tokens: tuple[int, ...]
    rows: tuple[DeviceRow, ...]


@dataclass(frozen=True, slots=True)
class PointMassTree:
    """Branches of certain tokens; siblings differ.

    parents: index of the token before each, -1 for the end of the history.
    window_tokens: number of tokens at the end that are only computed, and never accepted.
    """

    rule: ClassVar[Rule] = Rule.SAMPLE_MATCH
    is_tree: ClassVar[bool] = True

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    window_tokens: int = 0

    @property
    def width(self) -> int:
        return count_leaves(self.parents[: len(self.tokens) - self.window_tokens])


@dataclass(frozen=True, slots=True)
class TreeWithoutReplacement:
    """Branches of sampled tokens, siblings without replacement and in the order sampled.

    parents: as in PointMassTree.
    distributions: the q_draft at each token's parent, from which its first sibling was sampled.
    """

    rule: ClassVar[Rule] = Rule.TRAVERSAL
    is_tree: ClassVar[bool] = True
    window_tokens: ClassVar[int] = 0

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    distributions: tuple[Distribution, ...]

    @property
    def width(self) -> int:
        return count_leaves(self.parents)


HostLine = PointMassLine | SampledLine
Line = HostLine | DeviceLine
Tree = PointMassTree | TreeWithoutReplacement
Form = Line | Tree


def on_host(line: Line) -> HostLine:
    if not isinstance(line, DeviceLine):
        return line
    return SampledLine(line.tokens, tuple(from_row(row.probabilities()) for row in line.rows))


MOST_DRAFTED = 62
"""Most tokens of any draft: with the last token of the text, a pass over 63. From 64 on, attention
on the processor is computed otherwise (backends.llamacpp.context)."""

_CLASSES = 10
"""Number of evidence classes: tenths of the drafter's own probability of the token."""

KeepOn = Callable[[float, int], bool]
"""Whether to draft one more token, given the confidence and evidence of the last one."""


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed to follow a history.

    form: the tokens, in the form that determines how they are verified.
    confidence: the drafter's own probability that each token is accepted.
    evidence: class of what each token was proposed for, such as the length of a match; tokens of
        one class are accepted about equally often.
    listener: receives the model's likeliest token after each drafted one, accepted or not, before
        the drafter commits.
    empty_drafts: drafters that were asked first and proposed nothing.
    padding: tokens that its pass is filled up with, whose logits nobody looks at.
    acceptance: estimate of each token's, given that those before it are accepted; only of a line
        that is to share its pass.
    """

    form: Form
    drafter: str
    confidence: tuple[float, ...]
    evidence: tuple[int, ...] = ()
    listener: Listener | None = None
    empty_drafts: tuple[EmptyDraft, ...] = ()
    padding: int = 0
    acceptance: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.form.tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.form.tokens

    @property
    def drafted(self) -> int:
        """Number of tokens that may be accepted, without those at the end that never are."""
        return len(self.form.tokens) - self.form.window_tokens

    @property
    def rule(self) -> Rule:
        return self.form.rule if self.drafted else Rule.NONE

    @property
    def is_sampled(self) -> bool:
        """Whether its tokens were sampled, each from a q_draft."""
        return self.form.rule is not Rule.SAMPLE_MATCH

    @property
    def is_tree(self) -> bool:
        return self.form.is_tree

    @property
    def shape(self) -> Shape:
        if not self.drafted:
            return Shape.NONE
        if self.form.is_tree:
            return Shape.TREE
        return Shape.PATHS if self.form.width > 1 else Shape.LINE

    @property
    def width(self) -> int:
        """Number of branches of a tree, or of the lines that a line was selected from."""
        return self.form.width

    def first(self, count: int) -> "Draft":
        """A line cut to its first count tokens; sampled tokens are never cut off."""
        assert isinstance(self.form, PointMassLine), "only certain tokens of a line may be cut off"
        return replace(
            self,
            form=PointMassLine(self.form.tokens[:count]),
            confidence=self.confidence[:count],
            evidence=self.evidence[:count],
            acceptance=self.acceptance[:count],
        )


NO_DRAFT = Draft(PointMassLine(()), "", ())


def evidence_class(confidence: float) -> int:
    return min(int(confidence * _CLASSES), _CLASSES - 1)


def with_confidence(form: Form, drafter: str, confidence: Sequence[float]) -> Draft:
    """A draft whose evidence is the drafter's own probability of each token."""
    return Draft(form, drafter, tuple(confidence), tuple(map(evidence_class, confidence)))


def with_q_draft(form: SampledLine | TreeWithoutReplacement, drafter: str) -> Draft:
    """A draft whose confidence is the q_draft of each token."""
    pairs = zip(form.distributions, form.tokens, strict=True)
    return with_confidence(form, drafter, [q_draft.of(token) for q_draft, token in pairs])


class Drafter(Protocol):
    """Guesses the next tokens. Catches up with the history lazily, so idling costs nothing.

    What it need not do, such as read a history or settle a draft, is as here.

    name: how the drafter is called in statistics and on screen. is_free: whether a proposal costs
    next to nothing and may be cut: some are made to learn from.
    """

    name: str
    is_free: bool = False

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        """Start a reply to history, which need not continue the one before."""

    def backlog(self, history: Sequence[int]) -> int:
        """Tokens of history it would have to read before it can propose."""
        return 0

    def refusal(self, history: Sequence[int]) -> str:
        """Why it cannot draft after history, such as a full context; empty while it can.

        Asked at every step, so that it reads and computes nothing.
        """
        return ""

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Work the backlog off now, so that the next proposal need not; yields after each chunk."""
        return iter(())

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        """At most limit tokens to follow history, or a tree that deep; empty for nothing to say.

        history is what begin or the last commit gave, or goes on from there with tokens that are
        only guessed, nothing of which may be kept. A drafter that draws one token after another
        asks keep_on after each, and hands on every token it drew; others do not.
        """
        ...

    def commit(self, history: Sequence[int]) -> None:
        """Take in the text as it is after verification, before the next proposal."""

    def observe(self, step: Step) -> None:
        """Learn what became of the last draft, its cost included, when its pass is done.

        A guess that extends a history is verified too where one drafter drafts for another, so
        what was accepted need not be committed.
        """


def refusal_of_all(drafters: Iterable[Drafter], history: Sequence[int]) -> str:
    """Why none of several drafters can draft after history; empty while one can."""
    found = [drafter.refusal(history) for drafter in drafters]
    return "; ".join(dict.fromkeys(found)) if all(found) else ""
