"""A drafter model of another vocabulary whose words are taken as text.

Timor et al. 2025 (arXiv 2502.05202), string-level drafting: draft greedily, decode, tokenize for
the target. The result is a deterministic draft.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from backends.base import Logits
from decoding.draft import NO_DRAFT, Draft, KeepOn
from decoding.drafters.draft_model import evidence_class
from decoding.drafters.follower import Follower
from decoding.events import Step
from decoding.pieces import Pieces
from decoding.sampler import Sampler
from decoding.sampling import Distribution, SamplingSettings, point_mass
from decoding.shared_vocabulary import SharedVocabulary
from decoding.speller import Speller

_MOST_PER_TOKEN = 4
"""Tokens the drafter draws, for each the target is to have, in search of its end."""


@dataclass(slots=True)
class _Said:
    """Text as it grows: where each token of the drafter begins in it, and its probability."""

    text: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list[int])
    probabilities: list[float] = field(default_factory=list[float])
    ending: list[int] = field(default_factory=list[int])
    """The target's token that ends the reply after the text, if the drafter ended it."""

    def add(self, piece: bytes, probability: float) -> None:
        self.starts.append(len(self.text))
        self.probabilities.append(probability)
        self.text += piece

    def confidence(self, pieces: Sequence[bytes]) -> list[float]:
        """For pieces of the text, the probability of what the drafter began to say in each."""
        found: list[float] = []
        end, first = 0, 0
        for piece in pieces:
            end += max(len(piece), 1)
            until = bisect_left(self.starts, end)
            found.append(prod(self.probabilities[first:until]))
            first = max(until, first)
        return found


class TextLevel:
    """Drafts text and spells it in the target's tokens, for vocabularies that share too little.

    The last token of a spelling is kept back while more text may change it. ours and speller are of
    the target, theirs of the drafter.
    """

    is_free = False

    def __init__(
        self,
        name: str,
        follower: Follower,
        shared: SharedVocabulary,
        theirs: Pieces,
        ours: Pieces,
        speller: Speller,
        *,
        max_draft: int = 15,
    ) -> None:
        self.name = name
        self._follower = follower
        self._shared = shared
        self._theirs = theirs.by_token
        self._ours = ours.by_token
        self._speller = speller
        self._max_draft = max_draft
        self._sampler = Sampler(SamplingSettings())

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._sampler = sampler
        self._follower.begin(history)

    def commit(self, history: Sequence[int]) -> None:
        """Nothing to learn: the next proposal catches up."""

    def observe(self, step: Step) -> None:
        """Nothing to learn: weights do not change."""

    def backlog(self, history: Sequence[int]) -> int:
        return self._follower.backlog(history)

    def refusal(self, history: Sequence[int]) -> str:
        del history  # what was followed of it tells
        return self._follower.refusal

    def read(self, history: Sequence[int]) -> Iterator[int]:
        return self._follower.read(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        count = min(limit, self._max_draft)
        rows = self._follower.row(history) if count > 0 else None
        if rows is None:
            return NO_DRAFT
        said = _Said()
        tokens: list[int] = []
        confidence: list[float] = []
        asked = 0
        for is_whole in self._speak(rows, said, _MOST_PER_TOKEN * count):
            spelled = [*self._speller.spell(bytes(said.text)), *said.ending]
            tokens = (spelled if is_whole else spelled[:-1])[:count]
            confidence = said.confidence([self._ours[token] for token in tokens])
            if keep_on is not None:
                refused = _refused(keep_on, confidence[: count - 1], asked)
                asked = max(asked, len(tokens))
                if refused is not None:
                    tokens, confidence = tokens[:refused], confidence[:refused]
                    break
            if len(tokens) == count:
                break
        self._follower.drafted(tuple(tokens))
        evidence = tuple(map(evidence_class, confidence))
        return Draft(tuple(tokens), self.name, tuple(confidence), None, evidence)

    def _speak(self, rows: Logits | None, said: _Said, most: int) -> Iterator[bool]:
        """Add the likeliest token again and again; yields whether the text is over."""
        theirs: list[int] = []
        while rows is not None:
            q_draft = self._sampler.distribution(rows[0], self._follower.tokens, theirs)
            best = int(q_draft.probabilities.argmax())
            token = int(q_draft.ids[best])
            piece = self._theirs[token]
            if not piece:
                same = int(self._shared.to_target[token])
                said.ending += [same] if same >= 0 else []
                yield True
                return
            said.add(piece, float(q_draft.probabilities[best]))
            theirs.append(token)
            if len(theirs) == most:
                yield True
                return
            yield False
            rows = self._follower.draw(token)
        yield True

    def guess(self, history: Sequence[int]) -> Callable[[SamplingSettings], Distribution] | None:
        """The first token after history, whatever the settings; None for nothing to say."""
        draft = self.propose(history, 1)
        return (lambda settings: point_mass(draft.tokens[0])) if draft.tokens else None


def _refused(keep_on: KeepOn, confidence: Sequence[float], first: int) -> int | None:
    """How many tokens there are up to the one, from first on, after which none is wanted."""
    for place in range(first, len(confidence)):
        if not keep_on(confidence[place], evidence_class(confidence[place])):
            return place + 1
    return None
