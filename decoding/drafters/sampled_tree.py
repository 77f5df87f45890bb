"""Drawn trees, whose siblings are sampled without replacement, and several drawn lines.

Sequoia (Chen et al. 2024, arXiv 2402.12374). The shape has to be fixed before anything is sampled:
a tree that grew where good tokens came up would not have the distribution it is verified by.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from backends.base import Context
from backends.base.parent_array import path_to
from decoding.draft import (
    NO_DRAFT,
    Draft,
    Drafter,
    KeepOn,
    SampledLine,
    TreeWithoutReplacement,
    with_q_draft,
)
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

    def __init__(
        self,
        name: str,
        context: Context,
        shape: TreeShape,
        *,
        n_vocab: int,
        end_tokens: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(name, TreeReader(context, n_vocab), end_tokens)
        self.largest = TreeSize(shape.depth, shape.nodes)
        self._shape = shape

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
            inner = [node for node in inner if tokens[node] not in self.end_tokens]
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
        self._active = self._likeliest if sampler.settings.temperature == 0.0 else self._sampled
        self._active.begin(history, sampler)

    def commit(self, history: Sequence[int]) -> None:
        self._active.commit(history)

    def observe(self, step: Step) -> None:
        self._active.observe(step)

    def backlog(self, history: Sequence[int]) -> int:
        return self._active.backlog(history)

    def refusal(self, history: Sequence[int]) -> str:
        return self._active.refusal(history)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        return self._active.read(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        return self._active.propose(history, limit, keep_on)


# Selection of one of several independently sampled lines, with its exact distribution.
#
# The lines are ordered lexicographically, with the tokens ranked anew after every prefix, and the
# last one is selected. As nested intervals of [0, 1), lines are sampled by a uniform number; the
# highest of k numbers lies below b with probability b^k. So with the interval [a, b) of a prefix
# and [a(x), b(x)) of the prefix followed by x, token x of the selected line has the probability
# (b(x)^k - a(x)^k) / (b^k - a^k). Verified against that distribution, it is a line like any other.

DistributionAfter = Callable[[tuple[int, ...]], Distribution]
"""The q_draft after a drafted prefix."""


def select(
    lines: Sequence[Sequence[int]], q_draft_after: DistributionAfter
) -> tuple[int, tuple[Distribution, ...]]:
    """Index of the selected line, and the distribution of each of its tokens given the selection.

    lines: each token was sampled from q_draft_after those before it; whether a line goes on
    depends on these alone. Only prefixes of the selected line are looked up.
    """
    candidates = list(range(len(lines)))
    prefix: tuple[int, ...] = ()
    below, width = 0.0, 1.0  # the interval is [below, below + width), scaled to end at 1
    selected: list[Distribution] = []
    while any(len(lines[index]) > len(prefix) for index in candidates):
        assert all(len(lines[index]) > len(prefix) for index in candidates), (
            "equal lines end together"
        )
        q_draft = q_draft_after(prefix)
        places = np.argsort(q_draft.probabilities, kind="stable")
        ranked = q_draft.probabilities[places]
        ends = below + width * ranked.cumsum()
        starts = np.concatenate(([below], ends[:-1]))
        selected.append(_reweighted(q_draft, places, ranked * _spread(starts, ends, len(lines))))

        tokens = q_draft.ids[places]
        rank_of = {
            index: int((tokens == lines[index][len(prefix)]).argmax()) for index in candidates
        }
        highest = max(rank_of.values())
        candidates = [index for index in candidates if rank_of[index] == highest]
        prefix = (*prefix, int(tokens[highest]))
        below, width = float(starts[highest]), width * float(ranked[highest])
        below, width = below / (below + width), width / (below + width)
    return candidates[0], tuple(selected)


def _reweighted(
    q_draft: Distribution, places: NDArray[np.intp], weights: NDArray[np.float64]
) -> Distribution:
    probabilities = np.empty_like(weights)
    probabilities[places] = weights
    return Distribution(q_draft.ids, probabilities / probabilities.sum())


def _spread(
    starts: NDArray[np.float64], ends: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    total = power = np.ones_like(starts)
    for _ in range(count - 1):
        power = power * starts
        total = total * ends + power
    return total


# Multi-draft: a drafter model samples several lines independently, and one of them is sent.
#
# After SpecTr-GBV (arXiv 2604.25925), with the selection of `decoding.drafters.sampled_tree`:
# the target verifies a single line, so that the others cost drafter time alone.

Prefix = tuple[int, ...]


class SeveralPaths(ReadsBacklog[TreeReader]):
    """Samples lines of one length and proposes the one whose tokens its model finds likeliest.

    A line is shorter only where a token ends the reply, or the grammar fails. Common prefixes are
    run once. Each token comes with its distribution given the selection. n_vocab is the target's.
    """

    def __init__(
        self,
        name: str,
        context: Context,
        paths: int,
        length: int,
        *,
        n_vocab: int,
        end_tokens: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(name, TreeReader(context, n_vocab), end_tokens)
        self.paths = paths
        self._length = length

    def refusal(self, history: Sequence[int]) -> str:
        return self._reader.refusal(history, needed=self.paths)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        length = min(limit, self._length, self._reader.room(history) // self.paths)
        if length <= 0:
            return NO_DRAFT
        first = self._sampler.q_draft(self._reader.top(history)[0], history)
        if first is None:
            return NO_DRAFT
        q_draft: dict[Prefix, Distribution] = {(): first}
        numbers: dict[Prefix, int] = {(): -1}
        lines: list[Prefix] = [()] * self.paths
        for position in range(length):
            lines = [self._extended(line, q_draft) for line in lines]
            whole = [line for line in dict.fromkeys(lines) if len(line) == position + 1]
            level = [line for line in whole if line[-1] not in self.end_tokens]
            if position + 1 == length or not level:
                break
            added, rows = self._reader.level(
                [line[-1] for line in level], [numbers[line[:-1]] for line in level]
            )
            for line, number, row in zip(level, added, rows, strict=True):
                numbers[line] = number
                after = self._sampler.q_draft(row, history, line)
                if after is not None:
                    q_draft[line] = after
        return self._selected(lines, q_draft)

    def _extended(self, line: Prefix, q_draft: Mapping[Prefix, Distribution]) -> Prefix:
        """A line with one token more, unless it has ended."""
        after = q_draft.get(line)
        return line if after is None else (*line, after.draw(uniform(self._sampler.drafting)))

    def _selected(self, lines: Sequence[Prefix], q_draft: Mapping[Prefix, Distribution]) -> Draft:
        index, distributions = select(lines, q_draft.__getitem__)
        line = SampledLine(lines[index], distributions, width=self.paths)
        return with_q_draft(line, self.name)
