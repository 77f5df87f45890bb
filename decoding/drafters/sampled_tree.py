"""A drafted tree whose siblings are sampled without replacement.

Sequoia (Chen et al. 2024, arXiv 2402.12374). The shape has to be fixed before anything is sampled:
a tree that grew where good tokens came up would not have the distribution it is verified by.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from backends.base import Context
from backends.base.parent_array import path_to
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, TreeWithoutReplacement, with_q_draft
from decoding.drafters.base import ReadsBacklog
from decoding.drafters.trees import PlannedDrafter, TreeReader, TreeShape
from decoding.estimation.cost import TreeSize
from decoding.events import Step
from decoding.sampling.distribution import Distribution, uniform
from decoding.sampling.sampler import Sampler


class SampledTree(ReadsBacklog[TreeReader]):
    """Samples each level of a shape in one pass, each token from its warped q_draft.

    A node has fewer children than planned only where its q_draft has no more tokens, and none where
    it ends the reply or the grammar fails: all of it depends on earlier tokens alone. n_vocab is
    the target's. shape: the largest tree, drafted until plan sets another. A proposal has at most
    limit nodes, so that whether it fits is known before it is sampled.
    """

    is_free = False

    def __init__(
        self,
        name: str,
        context: Context,
        shape: TreeShape,
        *,
        n_vocab: int,
        end_tokens: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(TreeReader(context, n_vocab))
        self.name = name
        self.largest = TreeSize(shape.depth, shape.nodes)
        self._shape = shape
        self._end_tokens = end_tokens

    def plan(self, shape: TreeShape) -> None:
        """Draft this shape from the next proposal on, cut to the largest size."""
        self._shape = shape.within(self.largest.nodes, self.largest.depth)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        shape = self._shape.within(min(limit, self._reader.room(history)), limit)
        if shape.nodes == 0:
            return NO_DRAFT
        first = self._sampler.q_draft(self._reader.top(history)[0], history)
        if first is None:
            return NO_DRAFT
        tokens: list[int] = []
        parents: list[int] = []
        distributions: list[Distribution] = []
        drafted = {-1: -1}  # node of the draft by node of the shape
        q_draft = {-1: first}
        numbers = {-1: -1}  # number in the reader by node of the draft
        for level in shape.levels:
            for parent, ranks in groupby(level, key=shape.parents.__getitem__):
                above = drafted.get(parent)
                if above is None or above not in q_draft:
                    continue
                siblings = _without_replacement(q_draft[above], self._sampler.drafting)
                for node, token in zip(ranks, siblings, strict=False):
                    drafted[node] = len(tokens)
                    tokens.append(token)
                    parents.append(above)
                    distributions.append(q_draft[above])
            inner = [drafted[node] for node in level if node in shape.inner and node in drafted]
            inner = [node for node in inner if tokens[node] not in self._end_tokens]
            if not inner:
                break
            added, rows = self._reader.level(
                [tokens[node] for node in inner], [numbers[parents[node]] for node in inner]
            )
            numbers.update(zip(inner, added, strict=True))
            for node, row in zip(inner, rows, strict=True):
                path = [tokens[above] for above in path_to(node, parents)]
                after = self._sampler.q_draft(row, history, path)
                if after is not None:
                    q_draft[node] = after
        tree = TreeWithoutReplacement(tuple(tokens), tuple(parents), tuple(distributions))
        return with_q_draft(tree, self.name)


def _without_replacement(
    distribution: Distribution, generator: np.random.Generator
) -> Iterator[int]:
    """Tokens sampled without replacement, until none has any probability left."""
    left = distribution.probabilities.copy()
    while (total := left.sum()) > 0.0:
        token = Distribution(distribution.ids, left / total).draw(uniform(generator))
        yield token
        left[distribution.ids.searchsorted(token)] = 0.0


class TreeByTemperature(Drafter):
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
        return self._likeliest.largest

    def plan(self, shape: TreeShape) -> None:
        """Draft this shape from the next proposal on."""
        self._likeliest.plan(shape)
        self._sampled.plan(shape)

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
