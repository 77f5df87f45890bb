"""A tree of a model's likeliest tokens at temperature 0, and of sampled ones above."""

from collections.abc import Iterator, Sequence

from decoding.draft import Draft, KeepOn
from decoding.drafters.model.planned import Growth, PlannedDrafter
from decoding.estimation.cost import TreeSize
from decoding.events import Step
from decoding.sampling.sampler import Sampler
from decoding.tree_shape import TreeShape


class TreeByTemperature:
    """Two tree drafters on one context, of which the temperature of a reply selects one.

    Sampled tokens are accepted more often where the target samples too; at temperature 0 a sampled
    tree would have a single branch.
    """

    is_free = False

    def __init__(self, name: str, likeliest: PlannedDrafter, sampled: PlannedDrafter) -> None:
        assert likeliest.largest == sampled.largest, "a plan is for both"
        self.name = name
        self._likeliest, self._sampled = likeliest, sampled
        self._active = likeliest

    @property
    def largest(self) -> TreeSize:
        """The largest tree that either drafts."""
        return self._likeliest.largest

    def plan(self, shape: TreeShape, growth: Growth | None = None) -> None:
        """Draft this shape from the next proposal on."""
        self._likeliest.plan(shape, growth)
        self._sampled.plan(shape, growth)

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        chosen = self._likeliest if sampler.settings.temperature == 0.0 else self._sampled
        if chosen is not self._active:
            self._active.rest()
            self._active = chosen
        chosen.begin(history, sampler)

    def commit(self, history: Sequence[int]) -> None:
        self._active.commit(history)

    def observe(self, step: Step) -> None:
        self._active.observe(step)

    def rest(self) -> None:
        self._active.rest()

    def backlog(self, history: Sequence[int]) -> int:
        return self._active.backlog(history)

    def refusal(self, history: Sequence[int]) -> str:
        return self._active.refusal(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        return self._active.read(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        return self._active.propose(history, limit, keep_on)
