"""A drafter model of another vocabulary, sampled over the tokens that both vocabularies share.

Timor et al. 2025 (arXiv 2502.05202), token-level intersection: the drafter's distribution is
restricted to the shared tokens and renormalised, and is verified as any q_draft.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from backends.base import Logits
from decoding.draft import (
    MOST_DRAFTED,
    NO_DRAFT,
    Draft,
    KeepOn,
    PointMassLine,
    evidence_class,
    with_confidence,
)
from decoding.drafters.base import GrowingDraft, ReadsBacklog
from decoding.drafters.cross_vocabulary.vocabularies import (
    Follower,
    SharedVocabulary,
    Speller,
    TokenBytes,
)
from decoding.sampling.distribution import Distribution, point_mass, uniform, warp
from decoding.sampling.settings import SamplingSettings

LEAST_SHARED = 0.5
"""Total probability of shared tokens below which the drafter's likeliest token is spelled out."""


class _Across(ReadsBacklog[Follower]):
    """Drafts by a model whose pieces are theirs. speller: spells in tokens of the target."""

    def __init__(
        self,
        name: str,
        follower: Follower,
        shared: SharedVocabulary,
        theirs: TokenBytes,
        speller: Speller,
        *,
        end_tokens: frozenset[int] = frozenset(),
        max_draft: int = MOST_DRAFTED,
    ) -> None:
        super().__init__(name, follower, end_tokens)
        self._shared = shared
        self._pieces = theirs.by_token
        self._speller = speller
        self._max_draft = max_draft

    def _after(self, history: Sequence[int], limit: int) -> tuple[int, Logits | None]:
        """The most tokens of a draft, and the drafter's logits after history, None for no draft."""
        count = min(limit, self._max_draft)
        return count, self._reader.row(history) if count > 0 else None


class AcrossVocabularies(_Across):
    """Samples shared tokens, and spells out tokens of the drafter that the target lacks.

    Which of the two is done depends on earlier tokens alone, and a spelling is a point mass. So
    every token comes with exactly the distribution it was sampled from.
    """

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        count, rows = self._after(history, limit)
        if rows is None:
            return NO_DRAFT
        draft = GrowingDraft()
        theirs: list[int] = []
        while rows is not None:
            token = self._next(rows, theirs, draft, count, keep_on)
            if token is None:
                break
            rows = self._reader.draw(token)
            theirs.append(token)
        self._reader.drafted(tuple(draft.tokens))
        return draft.done(self.name)

    def _next(
        self,
        rows: Logits,
        theirs: Sequence[int],
        draft: GrowingDraft,
        count: int,
        keep_on: KeepOn | None,
    ) -> int | None:
        """Extend a draft by one token of the drafter, which is returned; None to end the draft."""
        q_draft = self._sampler.q_draft_elsewhere(rows[0], self._reader.tokens, theirs)
        if q_draft is None:
            return None
        mass, q_shared, spelled = self._ways(q_draft)
        if spelled:
            token = q_draft.mode
            added = [(ours, point_mass(ours), 1.0) for ours in spelled]
            added[0] = (*added[0][:2], q_draft.of(token))
        elif q_shared is not None:
            shared = q_shared.draw(uniform(self._sampler.drafting))
            token = int(self._shared.to_drafter[shared])
            added = [(shared, q_shared, mass * q_shared.of(shared))]
        else:
            return None
        for ours, distribution, confidence in added:
            draft.add(ours, confidence, distribution)
            is_over = len(draft) == count or ours in self.end_tokens
            if is_over or not draft.goes_on(keep_on):
                return None
        return token

    def _ways(self, q_draft: Distribution) -> tuple[float, Distribution | None, list[int]]:
        """The probability of shared tokens, q_draft of these, and the likeliest token spelled out.

        It is where too little is shared, unless it is a control token.
        """
        mass, q_shared = self._shared.restricted(q_draft)
        piece = self._pieces[q_draft.mode] if mass < LEAST_SHARED else b""
        return mass, q_shared, self._speller.spell(piece)

    def guess(self, history: Sequence[int]) -> Callable[[SamplingSettings], Distribution] | None:
        """A function from settings to q_draft of the first token; None if it cannot draft."""
        rows = self._reader.row(history)
        if rows is None:
            return None
        row = rows[0].copy()

        def first_token(settings: SamplingSettings) -> Distribution:
            q_draft = warp(row, settings)
            _, q_shared, spelled = self._ways(q_draft)
            if spelled:
                return point_mass(spelled[0])
            return q_shared if q_shared is not None else point_mass(-1)

        return first_token


# A drafter model of another vocabulary whose output is used as text.
#
# Timor et al. 2025 (arXiv 2502.05202), string-level drafting: draft greedily, decode, tokenize for
# the target. The result is a deterministic draft.

_MOST_PER_TOKEN = 4
"""The most tokens of the drafter for each token of the target."""


@dataclass(slots=True)
class _Text:
    """Drafted text so far, with the start and probability of each of the drafter's tokens."""

    content: bytearray = field(default_factory=bytearray)
    starts: list[int] = field(default_factory=list[int])
    probabilities: list[float] = field(default_factory=list[float])
    ending: list[int] = field(default_factory=list[int])
    """The target's end token, if the drafter ended the reply."""

    def add(self, piece: bytes, probability: float) -> None:
        self.starts.append(len(self.content))
        self.probabilities.append(probability)
        self.content += piece

    def confidence(self, pieces: Sequence[bytes]) -> list[float]:
        """Confidence of each piece: product over the drafter's tokens that begin in it."""
        confidence: list[float] = []
        end, first = 0, 0
        for piece in pieces:
            end += max(len(piece), 1)
            until = bisect_left(self.starts, end)
            confidence.append(prod(self.probabilities[first:until]))
            first = max(until, first)
        return confidence


class TextLevel(_Across):
    """Drafts text and tokenizes it for the target, for vocabularies that share too little.

    The last token of a spelling is held back while more text may change it.
    """

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        count, rows = self._after(history, limit)
        if rows is None:
            return NO_DRAFT
        text, ours = _Text(), self._speller.pieces.by_token
        tokens: list[int] = []
        confidence: list[float] = []
        asked = 0
        for is_whole in self._generate(rows, text, _MOST_PER_TOKEN * count):
            spelled = [*self._speller.spell(bytes(text.content)), *text.ending]
            tokens = (spelled if is_whole else spelled[:-1])[:count]
            confidence = text.confidence([ours[token] for token in tokens])
            if keep_on is not None:
                refused = _refused(keep_on, confidence[: count - 1], asked)
                asked = max(asked, len(tokens))
                if refused is not None:
                    tokens, confidence = tokens[:refused], confidence[:refused]
                    break
            if len(tokens) == count:
                break
        self._reader.drafted(tuple(tokens))
        return with_confidence(PointMassLine(tuple(tokens)), self.name, confidence)

    def _generate(self, rows: Logits | None, text: _Text, most: int) -> Iterator[bool]:
        """Generate greedily into text; yields after each token whether the text is complete."""
        theirs: list[int] = []
        while rows is not None:
            q_draft = self._sampler.q_draft_elsewhere(rows[0], self._reader.tokens, theirs)
            if q_draft is None:
                break
            token = q_draft.mode
            piece = self._pieces[token]
            if not piece:
                ending = int(self._shared.to_target[token])
                text.ending += [ending] if ending >= 0 else []
                yield True
                return
            text.add(piece, q_draft.of(token))
            theirs.append(token)
            if len(theirs) == most:
                yield True
                return
            yield False
            rows = self._reader.draw(token)
        yield True

    def guess(self, history: Sequence[int]) -> Callable[[SamplingSettings], Distribution] | None:
        """The first token after history as a point mass, at any settings; None without one."""
        draft = self.propose(history, 1)
        return (lambda _settings: point_mass(draft.tokens[0])) if draft.tokens else None


def _refused(keep_on: KeepOn, confidence: Sequence[float], first: int) -> int | None:
    """Number of tokens up to the first, from first on, after which keep_on wants no more."""
    for position in range(first, len(confidence)):
        if not keep_on(confidence[position], evidence_class(confidence[position])):
            return position + 1
    return None
