"""The risk budget behind "never slower" (docs/how-it-works/controller.md).

Everything is in units of a plain step. A step that emits n tokens at cost c saves n - c. A reply
begins with at most _CARRIED, and what is let in never takes the balance below -_SHOWN: so n tokens
cost at most (1 + _SHARE) n + _CARRIED + _SHOWN.
"""

_OPENING = 1.0
"""What may be lost before anything is known."""

_SHARE = 0.005
"""Of all decoding, what may be lost beyond that."""

_CARRIED = 1.0
"""The most one reply leaves to the next, so that a good one does not pay for a bad one."""

_SHOWN = 3.0
"""What a drafter that has shown that it pays may lose beyond that."""

_HIT, _MISS = 0.25, 0.5
_MOST_TRUST = 2.5


class RiskBudget:
    """An account of what speculation has saved, and so of what it may risk."""

    def __init__(self) -> None:
        self._balance = _OPENING
        self._trust = 0.0

    def begin(self) -> None:
        """A new reply."""
        self._balance = min(self._balance, _CARRIED)

    @property
    def affordable(self) -> float:
        """The most that the next step may lose."""
        return self._balance + self._trust

    @property
    def trusting(self) -> float:
        """The same for a drafter that has shown that it pays."""
        return self._balance + _SHOWN

    def settle(self, tokens: int, cost: float) -> None:
        """Take a step into account."""
        self._balance += (1.0 + _SHARE) * tokens - cost

    def refused(self, would_have_held: bool) -> None:
        """A draft that could not be afforded, and whether it began rightly, as the model told.

        Refusing what would have paid is a loss too: what is right again and again is let in.
        """
        change = _HIT if would_have_held else -_MISS
        self._trust = min(max(self._trust + change, 0.0), _MOST_TRUST)

    def risk(self, cost: float) -> None:
        """A step that may lose cost is let in; trust that this needs is used up."""
        if cost > self._balance:
            self._trust = max(self._trust - cost, 0.0)
