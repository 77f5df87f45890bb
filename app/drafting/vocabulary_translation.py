"""Compares two different vocabularies without running a model."""

from dataclasses import dataclass
from typing import Self

from app.builtin_prompts import built_in_prompts
from backends.base import Tokenizer
from decoding.drafters.cross_vocabulary.shared_vocabulary import SharedVocabulary
from decoding.drafters.cross_vocabulary.speller import Speller
from decoding.drafters.cross_vocabulary.token_bytes import TokenBytes

_LEAST_READABLE = 0.9
"""Share of ordinary text that the drafter's vocabulary must be able to spell."""


@dataclass(frozen=True, slots=True)
class VocabularyTranslation:
    """The vocabularies of target and drafter. in_text: share of shared tokens in ordinary text."""

    ours: TokenBytes
    theirs: TokenBytes
    speller: Speller
    their_speller: Speller
    shared: SharedVocabulary
    in_text: float

    @classmethod
    def of(cls, target: Tokenizer, drafter: Tokenizer) -> Self | None:
        """Compare two vocabularies; None if the drafter's cannot spell ordinary text."""
        ours, theirs = TokenBytes.of(target), TokenBytes.of(drafter)
        speller, their_speller = Speller(target, ours), Speller(drafter, theirs)
        text = " ".join(prompt.text for prompt in built_in_prompts()).encode()
        if len(theirs.joined(their_speller.spell(text))) < _LEAST_READABLE * len(text):
            return None
        shared = SharedVocabulary.of(target, ours, drafter, theirs)
        in_text = shared.share_of(speller.spell(text))
        return cls(ours, theirs, speller, their_speller, shared, in_text)

    @property
    def words(self) -> str:
        """The shares in words."""
        of_all, in_text = _percent(self.shared.share), _percent(self.in_text)
        return f"{of_all} of its tokens are shared, {in_text} in ordinary text"


def _percent(share: float) -> str:
    """Rounded down, so that 100 % means all."""
    return f"{int(100 * share)} %"
