"""The risk budget behind "never slower" (docs/how-it-works/controller.md).

Everything is in units of a plain step. A step that emits n tokens at cost c saves n - c. A reply
begins with a balance of at most _CARRIED, and no admitted draft takes it below -_PROVEN_EXTRA: so n
tokens cost at most (1 + _SHARE) n + _CARRIED + _PROVEN_EXTRA.
"""

_OPENING = 1.0
"""Balance before anything is known: one plain step, the least with which short drafts can start."""

_SHARE = 0.005
"""Allowance for each token: half a percent of all decoding, the bound that is promised."""

_CARRIED = 1.0
"""Largest balance that one reply leaves to the next, so that a good one does not pay for a bad
one; equal to _OPENING."""

_PROVEN_EXTRA = 3.5
"""Extra allowance for a drafter that has proven itself. Where two tokens in a pass cost 2.3 plain
steps (1.1B in Q8_0, two cores), the shortest draft that pays is of 7, which loses 4.4 if it fails:
with 3.0 a drafter right at 0.99 never drafted, with 3.5 it makes replies of 128 tokens 1.3 times as
fast, with 5.0 1.4; one right at 0.6 is at 0.986 of plain decoding or more with each (simulated)."""

_REFUSED_RIGHT, _REFUSED_WRONG = 0.25, 0.5
"""Change of the trial allowance by a refused draft that began right or wrong: it grows only if more
than two thirds begin right. A guess; not measured."""

_MOST_TRIAL = 2.5
"""Largest trial allowance: about one draft of 4 tokens on a two-core processor (2.6 plain steps).
A guess; not measured."""

_MOST_FURTHER = 2.2
"""Most that a reply may begin with beside, where a change of width costs time: enough for a draft
of 7 on the simulated H100, and 1.4 % of a reply of 160 tokens."""


class RiskBudget:
    """Balance of what drafting has saved, and so of what it may risk.

    change: cost of a change of width, in plain steps. reserved: what the step that is planned may
    lose whatever is drafted.
    """

    def __init__(self, change: float = 0.0) -> None:
        further = min(change, _MOST_FURTHER)
        self.reserved = 0.0
        self._has_changes = change > 0.0
        self._most_carried = _CARRIED + further
        self._balance = _OPENING + further
        self._most_trial = _MOST_TRIAL + 2.0 * change  # there and back
        self._proven_extra = _PROVEN_EXTRA + 3.0 * change  # back once, there and back again
        self._trial = 0.0

    def begin(self) -> None:
        self._balance = min(self._balance, self._most_carried)

    @property
    def affordable(self) -> float:
        """The most that the next step may lose."""
        return self._balance + self._trial - self.reserved

    @property
    def affordable_if_proven(self) -> float:
        """The most that the next step may lose with a drafter that has proven itself."""
        return self._balance + self._proven_extra - self.reserved

    def settle(self, tokens: float, cost: float) -> None:
        self._balance += (1.0 + _SHARE) * tokens - cost

    def record_refusal(self, *, would_be_accepted: bool) -> None:
        """Record a draft that was not affordable, and whether it began with the right token.

        Refusing what would have paid is a loss too: if refused drafts begin right again and again,
        one is allowed as a trial.
        """
        change = _REFUSED_RIGHT if would_be_accepted else -_REFUSED_WRONG
        most = self._most_trial
        if self._has_changes:  # or one that went wrong would end all trials of a reply
            most -= min(self._balance, 0.0)
        self._trial = min(max(self._trial + change, 0.0), most)

    def admit(self, cost: float) -> None:
        """Admit a draft that may lose cost; uses up the trial allowance if the balance is less."""
        if cost > self._balance:
            self._trial = max(self._trial - cost, 0.0)
