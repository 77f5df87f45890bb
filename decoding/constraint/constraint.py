"""Contract of what the tokens of one reply are limited to."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
"""Which tokens may follow, shape (n_vocab,)."""


class Forced(NamedTuple):
    """Tokens of the only text that may follow, in the division that the tokenizer makes of it.

    certain: number of the first of them that the tokenizer divides off whatever follows the text;
    the last ones may become part of a longer token.
    """

    tokens: tuple[int, ...]
    certain: int


NOTHING_FORCED = Forced((), 0)


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

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens, each of which was allowed."""
        ...
