"""Contract of what the tokens of one reply are limited to."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Constraint(Protocol):
    """Which tokens may follow in one reply; it advances with the tokens that are emitted only.

    Drafted tokens are given with each question and leave no trace, so that nothing has to be taken
    back when they are rejected.
    """

    def allowed(self, drafted: Sequence[int]) -> NDArray[np.bool_] | None:
        """The tokens that may follow the reply so far and drafted: shape (n_vocab,).

        None if all may. After drafted tokens that may not follow, none is allowed.
        """
        ...

    def forced(self, drafted: Sequence[int], limit: int) -> tuple[int, ...]:
        """At most limit tokens that must follow the reply so far and drafted, each the only one."""
        ...

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by emitted tokens, each of which was allowed."""
        ...
