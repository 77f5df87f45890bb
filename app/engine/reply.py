"""A reply as it is generated."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from decoding.constraint.grammar import GrammarKind
from decoding.events import FinishReason, TokenLogprob
from decoding.sampling.settings import LossyRule
from decoding.telemetry import Statistics

if TYPE_CHECKING:
    from decoding.planning.parking import DrafterStatus

_PREDICTION = "prediction"
"""Name of the drafter of predicted texts, whose code is not needed to show a reply."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive text of one source: a drafter's name or an Origin."""

    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the text of a reply: characters before it, and the token it is in."""

    characters: int
    token: int


START = Place(0, 0)


@dataclass(frozen=True, slots=True)
class PredictedTokens:
    """Tokens of a predicted text that were verified: accepted ones, and the others."""

    accepted: int
    rejected: int


@dataclass(slots=True)
class Reply:
    """A reply as it is generated; complete once finish_reason is set."""

    statistics: Statistics
    text: str = ""
    token_ids: list[int] = field(default_factory=list[int])
    provenance: list[str] = field(default_factory=list[str])
    """Source of each token: a drafter's name or an Origin."""
    token_ends: list[int] = field(default_factory=list[int])
    """Characters of the text up to the end of each token; a character of several tokens belongs to
    the last one."""
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    """Log probabilities of each token, if they were asked for."""
    token_bytes: dict[int, bytes] = field(default_factory=dict[int, bytes])
    """What the tokens stand for that log probabilities are told of, those of control tokens too."""
    finish_reason: FinishReason | None = None
    stop_text: str = ""
    """The stop text that ended it, which is not part of its text."""
    joules: float | None = None
    """Energy used for decoding, where the machine can measure it."""
    ahead_tokens: int = 0
    """Prompt tokens that were read before the request came."""
    rule: LossyRule | None = None
    """Lossy rule that its drafts are verified by."""
    grammar: GrammarKind | None = None
    """Kind of the grammar that its text must match, None if it may be anything."""
    is_predicted: bool = False
    """Whether a text was given that it is expected to repeat."""
    own_drafters: tuple[str, ...] = ()
    """Names of the drafters that draft for this reply alone."""
    own_statuses: "tuple[DrafterStatus, ...]" = ()
    """Their last states; empty until it has ended."""
    begun: Sequence[int] = ()
    """Tokens of the beginning that it continues."""

    @property
    def predicted(self) -> PredictedTokens | None:
        """What became of its predicted tokens; None if no text was predicted."""
        if not self.is_predicted:
            return None
        drafter = self.statistics.by_drafter.get(_PREDICTION)
        if drafter is None:
            return PredictedTokens(0, 0)
        return PredictedTokens(drafter.accepted, drafter.drafted - drafter.accepted)

    @property
    def lossy(self) -> LossyRule | None:
        """The lossy rule if tokens may depend on it; a reply with nothing drafted is lossless."""
        return self.rule if self.statistics.drafted else None

    def pieces_after(self, place: Place) -> tuple[list[Piece], Place]:
        """Text after a place, one piece for equal neighbours, and the place where it ends.

        Any thread may call it while another one adds to the reply.
        """
        text = self.text  # first: the tokens of this text are then known
        done, token = place.characters, place.token
        pieces: list[Piece] = []
        while done < len(text):
            end = min(self.token_ends[token], len(text))
            _append(pieces, text[done:end], self.provenance[token])
            done = end
            token += end == self.token_ends[token]
        return pieces, Place(done, token)


def _append(pieces: list[Piece], text: str, origin: str) -> None:
    if pieces and pieces[-1].origin == origin:
        pieces[-1] = Piece(pieces[-1].text + text, origin)
    elif text:
        pieces.append(Piece(text, origin))


def new_reply(asked_at: float | None = None) -> Reply:
    """An empty reply whose clock starts when it was asked for, by time.perf_counter(); else now."""
    return Reply(Statistics(time.perf_counter() if asked_at is None else asked_at))
