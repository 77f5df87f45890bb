"""A request, and the reply to it as it is generated."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.chat.conversation import USUAL, Conversation, Infill, ReplyOptions
from backends.chat.message import Tool
from backends.chat.reply_form import split
from decoding.constraint.grammar import GrammarKind
from decoding.events import FinishReason, TokenLogprob
from decoding.sampling.settings import LossyRule, SamplingSettings
from decoding.telemetry import Statistics

if TYPE_CHECKING:
    from decoding.planning.pausing import DrafterStatus

_PREDICTION = "prediction"
"""Name of the drafter of predicted texts, whose code is not needed to show a reply."""


@dataclass(frozen=True, slots=True)
class Request:
    """A conversation to answer, and how.

    partial: the beginning of an answer to continue. begun: the tokens that spell it, as far as they
    are known. draft: the drafters of this answer alone, for comparing answers; None for the
    session's. model: that of this answer alone, "" for the one in use. chat: its number in the
    history, None if not saved. text: what is continued, or filled, in place of the conversation.
    tools: those that the model may call. may_drop: whether the oldest turns are left out where the
    context is too short; if not, that is an error. program: the name of the program that asks over
    HTTP, "" if the user does. documents: reads the files of its chat, whose text it may quote; None
    if they are all in the prompt.
    """

    conversation: Conversation
    settings: SamplingSettings
    max_tokens: int
    partial: str = ""
    begun: tuple[int, ...] = ()
    draft: str | None = None
    model: str = ""
    chat: int | None = None
    options: ReplyOptions = USUAL
    text: str | Infill | None = None
    tools: tuple[Tool, ...] = ()
    may_drop: bool = True
    program: str = ""
    documents: Callable[[], Iterable[tuple[str, str]]] | None = None

    @property
    def least_size(self) -> int:
        """Characters of the part that is never left out of its prompt."""
        if isinstance(self.text, str):
            return len(self.text)
        if self.text is not None:
            return len(self.text.before) + len(self.text.after)
        turns = self.conversation.turns[-1:] if self.may_drop else self.conversation.turns
        calls = [call.arguments for turn in turns for call in turn.calls]
        told = [self.conversation.system, self.partial, *(turn.content for turn in turns), *calls]
        tools = [text for tool in self.tools for text in (tool.description, tool.parameters)]
        return sum(map(len, [*told, *tools]))


@dataclass(frozen=True, slots=True)
class PredictedTokens:
    """Tokens of a predicted text that were verified: accepted ones, and the others."""

    accepted: int
    rejected: int


@dataclass(slots=True)
class Reply:
    """The reply to a request as it is generated; complete once finish_reason is set.

    Its clock starts when it was asked for: now, unless its statistics are given.
    """

    request: Request
    statistics: Statistics = field(default_factory=lambda: Statistics(time.perf_counter()))
    text: str = ""
    token_ids: list[int] = field(default_factory=list[int])
    provenance: list[str] = field(default_factory=list[str])
    """Source of each token: a drafter's name or an Origin."""
    token_ends: list[int] = field(default_factory=list[int])
    """Characters of the text up to the end of each token, perhaps also of those of the next step; a
    character of several tokens belongs to the last one."""
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    """Log probabilities of each token, if they were asked for."""
    token_bytes: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """What the tokens stand for that log probabilities are told of, those of control tokens too."""
    finish_reason: FinishReason | None = None
    """Why generation ended; None while it runs, and after an error."""
    stop_text: str = ""
    """The stop text that ended it, which is not part of its text."""
    joules: float | None = None
    """Energy used for decoding, where the machine can measure it."""
    is_shared: bool = False
    """Whether its passes were shared with other replies: its rate is not compared with that of
    plain decoding, nor its energy told."""
    ahead_tokens: int = 0
    """Prompt tokens that were read before the request came."""
    thinking_ended_at: int = 0
    """Tokens of thinking after which its budget ended it; 0 if it did not."""
    own_drafters: tuple[str, ...] = ()
    """Names of the drafters that draft for this reply alone."""
    own_statuses: "tuple[DrafterStatus, ...]" = ()
    """Their last states; empty until it has ended."""
    begun: Sequence[int] | None = None
    """Tokens of the beginning that it continues; None until its prompt is known."""

    @property
    def grammar(self) -> GrammarKind | None:
        """Kind of the grammar that its text must match, None if it may be anything."""
        grammar = self.request.options.grammar
        return grammar.kind if grammar else None

    @property
    def thinking_tokens(self) -> int:
        """Tokens of thinking so far, with those that open and close it."""
        parts = split(self.text)
        is_some = bool(parts.thinking or parts.is_thinking)
        end = len(self.text) - len(parts.answer) if is_some else 0
        return bisect_right(self.token_ends, end) if end else 0

    @property
    def predicted(self) -> PredictedTokens | None:
        """What became of its predicted tokens; None if no text was predicted."""
        if not self.request.options.prediction:
            return None
        drafter = self.statistics.by_drafter.get(_PREDICTION)
        if drafter is None:
            return PredictedTokens(0, 0)
        return PredictedTokens(drafter.accepted, drafter.drafted - drafter.accepted)

    @property
    def lossy(self) -> LossyRule | None:
        """The lossy rule if tokens may depend on it; a reply with nothing drafted is lossless."""
        return self.request.settings.lossy_in_effect if self.statistics.drafted else None
