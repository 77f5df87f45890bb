"""A drafter model of another vocabulary, sampled over the tokens that both vocabularies share.

Timor et al. 2025 (arXiv 2502.05202), token-level intersection: the drafter's distribution is
restricted to the shared tokens and renormalised, and is verified as any q_draft.
"""

from collections.abc import Callable, Sequence

from backends.base import Logits
from decoding.draft import MOST_DRAFTED, NO_DRAFT, Draft, KeepOn, evidence_class
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


class AcrossVocabularies(ReadsBacklog[Follower]):
    """Samples shared tokens, and spells out tokens of the drafter that the target lacks.

    Which of the two is done depends on earlier tokens alone, and a spelling is a point mass. So
    every token comes with exactly the distribution it was sampled from.

    theirs: the drafter's pieces. speller: spells in tokens of the target.
    """

    is_free = False

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
        super().__init__(follower)
        self.name = name
        self._shared = shared
        self._pieces = theirs.by_token
        self._speller = speller
        self._end_tokens = end_tokens
        self._max_draft = max_draft

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        count = min(limit, self._max_draft)
        rows = self._reader.row(history) if count > 0 else None
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
        mass, q_shared = self._shared.restricted(q_draft)
        spelled = self._spelled(q_draft) if mass < LEAST_SHARED else []
        if spelled:
            token = _likeliest(q_draft)
            added = [(ours, point_mass(ours), 1.0) for ours in spelled]
            added[0] = (*added[0][:2], q_draft.of(token))
        elif q_shared is not None:
            shared = q_shared.draw(uniform(self._sampler.drafting))
            token = int(self._shared.to_drafter[shared])
            added = [(shared, q_shared, mass * q_shared.of(shared))]
        else:
            return None
        for ours, distribution, confidence in added:
            draft.add(ours, confidence, evidence_class(confidence), distribution)
            if len(draft.tokens) == count or ours in self._end_tokens:
                return None
            if keep_on is not None and not keep_on(confidence, evidence_class(confidence)):
                return None
        return token

    def _spelled(self, q_draft: Distribution) -> list[int]:
        """The drafter's likeliest token in tokens of the target; empty for a control token."""
        return self._speller.spell(self._pieces[_likeliest(q_draft)])

    def guess(self, history: Sequence[int]) -> Callable[[SamplingSettings], Distribution] | None:
        """A function from settings to q_draft of the first token; None if it cannot draft."""
        rows = self._reader.row(history)
        if rows is None:
            return None
        row = rows[0].copy()

        def first_token(settings: SamplingSettings) -> Distribution:
            q_draft = warp(row, settings)
            mass, q_shared = self._shared.restricted(q_draft)
            spelled = self._spelled(q_draft) if mass < LEAST_SHARED else []
            if spelled:
                return point_mass(spelled[0])
            return q_shared if q_shared is not None else point_mass(-1)

        return first_token


def _likeliest(distribution: Distribution) -> int:
    return int(distribution.ids[distribution.probabilities.argmax()])
