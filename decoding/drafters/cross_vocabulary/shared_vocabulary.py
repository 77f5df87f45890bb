"""Tokens that two vocabularies share, matched by their bytes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from backends.base import Tokenizer
from decoding.drafters.cross_vocabulary.token_bytes import TokenBytes
from decoding.sampling.distribution import Distribution


@dataclass(frozen=True, slots=True, eq=False)
class SharedVocabulary:
    """One-to-one between tokens of equal bytes.

    to_target: int64, shape (drafter's n_vocab,), to_drafter: shape (target's n_vocab,); -1 where
    a token is not shared. share: of the drafter's pieces, those that are shared.
    """

    to_target: NDArray[np.int64]
    to_drafter: NDArray[np.int64]
    share: float
    _in_order: NDArray[np.int64] = field(init=False)
    """The drafter's shared tokens in the order of the target's numbers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_in_order", self.to_drafter[self.to_drafter >= 0])

    @classmethod
    def of(
        cls, target: Tokenizer, ours: TokenBytes, drafter: Tokenizer, theirs: TokenBytes
    ) -> "SharedVocabulary":
        """Match the pieces of two vocabularies.

        Control tokens are never matched, as their meaning is private to a model, but for those
        that end a reply: by equal names, then the one that ends a text in either.
        """
        count = len(theirs.tokens)
        drafted = np.fromiter(theirs.tokens.values(), np.int64, count)
        found = (ours.tokens.get(piece, -1) for piece in theirs.tokens)
        to_target = np.full(drafter.n_vocab, -1, np.int64)
        to_target[drafted] = np.fromiter(found, np.int64, count)
        share = float((to_target >= 0).sum()) / max(count, 1)
        for token, same in _ends(target, drafter):
            if to_target[token] < 0 and same not in to_target:
                to_target[token] = same
        shared = np.flatnonzero(to_target >= 0)
        to_drafter = np.full(target.n_vocab, -1, np.int64)
        to_drafter[to_target[shared]] = shared
        return cls(to_target, to_drafter, share)

    def share_of(self, tokens: Iterable[int]) -> float:
        """The share of a text's tokens, those of the target, that are shared."""
        shared = self.to_drafter[np.fromiter(tokens, np.int64)] >= 0
        return float(shared.mean()) if len(shared) else 0.0

    def restricted(self, q_draft: Distribution) -> tuple[float, Distribution | None]:
        """The drafter's probability of all shared tokens, and its distribution over them alone.

        The distribution is over the target's ids; None where no shared token has any probability.
        Timor et al. 2025 (arXiv 2502.05202), token-level intersection.
        """
        if len(q_draft.ids) == len(self.to_target):
            drafted = self._in_order
            probabilities = q_draft.probabilities[drafted]
            ids = self.to_target[drafted]
        else:
            ids = self.to_target[q_draft.ids]
            order = ids.argsort()
            order = order[ids.searchsorted(0, sorter=order) :]
            ids, probabilities = ids[order], q_draft.probabilities[order]
        mass = float(probabilities.sum())
        return mass, Distribution(ids, probabilities / mass) if mass > 0.0 else None


def _ends(target: Tokenizer, drafter: Tokenizer) -> list[tuple[int, int]]:
    """Pairs (drafter's, target's) of tokens that end a reply, the surest first."""
    ours = {target.entry(token): token for token in target.end_tokens}
    named = [(token, ours.get(drafter.entry(token))) for token in sorted(drafter.end_tokens)]
    pairs = [*named, (drafter.eos, target.eos)]
    return [(one, other) for one, other in pairs if one is not None and other is not None]


def same_control(
    target: Tokenizer, ours: TokenBytes, drafter: Tokenizer, theirs: TokenBytes
) -> dict[int, list[int]]:
    """For each control token of the target the drafter's of the same name, to be read for it."""
    named = {
        drafter.entry(token): token for token, piece in enumerate(theirs.by_token) if not piece
    }
    found = {
        token: named.get(target.entry(token)) for token, p in enumerate(ours.by_token) if not p
    }
    return {token: [same] for token, same in found.items() if same is not None}
