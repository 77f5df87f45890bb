"""A tree of a model's likeliest tokens at temperature 0, and of drawn ones above."""

from collections.abc import Iterator, Sequence

from decoding.cost import TreeSize
from decoding.draft import Draft, KeepOn
from decoding.drafters.planned import PlannedDrafter
from decoding.events import Step
from decoding.sampler import Sampler
from decoding.tree_shape import TreeShape


class TreeByTemperature:
    """Two drafters on one context, one of which drafts in each reply.

    What is drawn is accepted more often where the target draws too; at temperature 0 nothing is
    drawn, and a tree would have one branch.
    """

    is_free = False

    def __init__(self, name: str, likeliest: PlannedDrafter, drawn: PlannedDrafter) -> None:
        assert likeliest.largest == drawn.largest, "a plan is for both"
        self.name = name
        self._likeliest, self._drawn = likeliest, drawn
        self._one = likeliest

    @property
    def largest(self) -> TreeSize:
        """The most that either drafts."""
        return self._likeliest.largest

    def plan(self, shape: TreeShape) -> None:
        """Draft in this form from the next proposal on."""
        self._likeliest.plan(shape)
        self._drawn.plan(shape)

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        chosen = self._likeliest if sampler.settings.temperature == 0.0 else self._drawn
        if chosen is not self._one:
            self._one.commit(())  # it lets go of its tree
            self._one = chosen
        chosen.begin(history, sampler)

    def commit(self, history: Sequence[int]) -> None:
        self._one.commit(history)

    def observe(self, step: Step) -> None:
        self._one.observe(step)

    def backlog(self, history: Sequence[int]) -> int:
        return self._one.backlog(history)

    def refusal(self, history: Sequence[int]) -> str:
        return self._one.refusal(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        return self._one.read(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        return self._one.propose(history, limit, keep_on)
