"""A drafter model: a cheaper model of the same vocabulary, sampled from its own distribution."""

from collections.abc import Sequence

from backends.base import Context
from decoding.draft import NO_DRAFT, Draft
from decoding.prefill import prefill, reuse
from decoding.sampler import Sampler
from decoding.sampling import Distribution, SamplingSettings, uniform


class DraftModel:
    """Draws tokens one after another, each from the warped q_draft it hands on.

    Its context may hold rejected tokens of the last draft, or lack accepted ones; the next
    proposal brings it to the history first. n_vocab is the target's: entries past it are padding.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        *,
        n_vocab: int,
        end_tokens: frozenset[int] = frozenset(),
        max_draft: int = 3,
    ) -> None:
        self.name = name
        self._context = context
        self._n_vocab = n_vocab
        self._end_tokens = end_tokens
        self._max_draft = max_draft
        self._agreed = 0
        self._sampler = Sampler(SamplingSettings())

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        del history  # compared when there is something to propose
        self._sampler = sampler
        self._agreed = 0

    def commit(self, history: Sequence[int]) -> None:
        """Nothing to learn: the next proposal catches up."""

    def propose(self, history: Sequence[int], limit: int) -> Draft:
        count = min(limit, self._max_draft, self._context.n_ctx - len(history))
        if count <= 0:
            return NO_DRAFT
        reuse(self._context, history, self._agreed)
        *_, (_, rows) = prefill(self._context, history)
        self._agreed = len(history)
        tokens: list[int] = []
        distributions: list[Distribution] = []
        while True:
            q_draft = self._sampler.distribution(rows[0, : self._n_vocab], history, tokens)
            token = q_draft.draw(uniform(self._sampler.drafting))
            tokens.append(token)
            distributions.append(q_draft)
            if len(tokens) == count or token in self._end_tokens:
                break
            rows = self._context.forward([token], 1)
        confidence = tuple(q.of(token) for q, token in zip(distributions, tokens, strict=True))
        return Draft(tuple(tokens), self.name, confidence, tuple(distributions))
