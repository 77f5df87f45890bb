"""The lines of the panel, and what each figure and drafter is, for the panel and for help."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from textual.content import Content

from app.printable import one_line
from backends.files.gguf_drafter import TrainedKind

_FREE = "; free"
_TRAINED = frozenset(kind.word for kind in TrainedKind)


@dataclass(frozen=True, slots=True)
class Term:
    name: str
    text: str
    joint: str = ": "

    @property
    def sentence(self) -> str:
        """The explanation as a sentence of its own."""
        text = self.text.removesuffix(_FREE)
        return f"{self.name}{self.joint}{text}.{' It is free.' if text != self.text else ''}"


SPEED = Term("speed", "tokens a second; a token is about three quarters of a word")
PLAIN = Term("plain", "the model alone, without drafts")
GAIN = Term("gain", "this answer's speed over plain, both measured in this answer")
DRAFTED = Term("drafted", "the share of this answer that drafters guessed and the model confirmed")
ACCEPTED = Term("accepted", "drafted tokens that the model confirmed")
PAUSED = Term("paused", "drafting would be slower now; it is retried automatically")
FULL = Term("context", "how much of what the model can see is used: a share of its tokens")
LOSSY = Term("lossy", "drafts may change the answer; the default rules never do")
SESSION = Term("this session", "all its answers together, so small gains and losses show too")
STEP = Term("A step", "is one pass of the model: it checks a draft and adds one token", " ")
START = Term("first token", "when the answer began; ready is what was read before you asked")
IN_A_ROW = Term("in a row", "a draft counts up to the first token that the model rejects")
TIME = Term("time", "what an answer spent in the model, in its drafters and elsewhere")
LIMIT = Term("memory limit", "each plain token reads all weights once; none can be faster")
MEMORY = Term("memory", "weights of the model and its drafters; chat grows with the context")
MINUTE = Term("last minute", "plain speed is grey, what drafting adds has its drafter's colour")

_DRAFTERS = {
    term.name: term
    for term in (
        Term("lookup", f"copies from what was said in this chat{_FREE}", " "),
        Term("retrieval", f"copies from what was said in your other chats{_FREE}", " "),
        Term("ngram", f"continues with this model's common phrases{_FREE}", " "),
        Term("self", "this model at lower precision guesses ahead"),
        Term("lookahead", "the model guesses further tokens beside its own work"),
    )
}

_OF_ONE_REPLY = {
    term.name: term
    for term in (
        Term("prediction", f"copies from the text that was predicted for this answer{_FREE}", " "),
        Term("documents", f"copies from files and pasted text, without line breaks{_FREE}", " "),
        Term("grammar", f"writes what the form of this answer leaves no choice about{_FREE}", " "),
    )
}
"""Not in help: they draft only for requests that bring a prediction, files or a form."""

TERMS = (
    SPEED,
    PLAIN,
    GAIN,
    DRAFTED,
    ACCEPTED,
    *_DRAFTERS.values(),
    PAUSED,
    LOSSY,
    FULL,
    STEP,
    LIMIT,
)
"""The terms of the screen, for help."""


def drafter_term(drafter: str) -> Term:
    """The explanation of a drafter, by its name in figures; any other name is that of a model."""
    family = drafter.rsplit("/", 1)[-1].partition(":")[0]
    if family == "jacobi":
        return Term(family, _DRAFTERS["lookahead"].text)
    if family in _TRAINED:
        return Term(family, "guesses ahead, and was trained for this model")
    known = _DRAFTERS | _OF_ONE_REPLY
    return known.get(family) or Term(one_line(drafter), "a smaller model that guesses ahead")


@runtime_checkable
class Helpable(Protocol):
    """A widget that explains what it shows, on focus and in help."""

    @property
    def help_text(self) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    content: Content
    term: Term | None = None

    @classmethod
    def of(cls, text: str = "", term: Term | None = None, style: str = "") -> Self:
        return cls(Content.styled(text, style) if style else Content(text), term)

    def is_same(self, other: "Line") -> bool:
        return self.term == other.term and self.content.is_same(other.content)


BLANK = Line.of()


def beside(left: Iterable[Line], right: Iterable[Line], width: int) -> list[Line]:
    """Lines next to each other, those of the left in so many columns; explained by the right."""
    return [
        Line(one.content.pad_right(width - one.content.cell_length) + two.content, two.term)
        for one, two in zip(left, right, strict=True)
    ]
