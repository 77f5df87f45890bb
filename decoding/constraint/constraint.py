"""Contract of what the tokens of one reply are limited to."""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
"""Which tokens may follow, shape (n_vocab,)."""


class Evidence(IntEnum):
    """What speaks for a token at a place of a reply.

    Where only one text may follow: KNOWN, the model always divided such a text so. LIKELY, it did
    last time, or its tokenizer does, at no beginning of a word. GUESSED, its tokenizer does, or
    nothing is known. DIFFERENT, the model divided it otherwise.
    Elsewhere: FIRST and SECOND, tokens after such a text; FURTHER, those after them.
    """

    KNOWN = 0
    LIKELY = 1
    GUESSED = 2
    DIFFERENT = 3
    FIRST = 4
    SECOND = 5
    FURTHER = 6


class Forced(NamedTuple):
    """Tokens of the only text that may follow, in the division that the model may well make."""

    tokens: tuple[int, ...]
    evidence: tuple[Evidence, ...]


NOTHING_FORCED = Forced((), ())


class Constraint(Protocol):
    """Which tokens may follow in one reply; it advances with the tokens that are emitted only.

    Drafted tokens are given with each question and leave no trace, so that nothing has to be taken
    back when they are rejected.

    Raises:
        ConstraintError: as of each question; without what is drafted, another may be answered.
    """

    @property
    def length(self) -> int:
        """Number of tokens accepted so far."""
        ...

    def allowed(self, drafted: Sequence[int]) -> Mask | None:
        """The tokens that may follow the reply so far and drafted; read-only.

        None if all may, as after a token that ends the reply. After drafted tokens that may not
        follow, none is allowed.
        """
        ...

    def count_allowed(self, drafted: Sequence[int], tokens: Sequence[int]) -> int:
        """How many of the first of tokens may follow the reply so far and drafted."""
        ...

    def forced(self, drafted: Sequence[int], limit: int) -> Forced:
        """At most limit tokens of the only text that may follow the reply so far and drafted.

        They are a guess: the text is certain, but the model may divide it otherwise.
        """
        ...

    def evidence(self, drafted: Sequence[int], tokens: Sequence[int]) -> Sequence[Evidence]:
        """What speaks for each of tokens after the reply so far and drafted, all of them legal."""
        ...

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens, each of which was allowed."""
        ...
