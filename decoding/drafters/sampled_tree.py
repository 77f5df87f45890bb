"""A drafted tree whose tokens are drawn, children of one node without replacement.

Sequoia (Chen et al. 2024, arXiv 2402.12374): the shape is settled before anything is drawn, and
must be: a tree that grew where good tokens came up would not have the law it is judged by.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from backends.base import Context
from backends.base.parent_array import path_to
from decoding.cost import TreeSize
from decoding.draft import NO_DRAFT, Draft, KeepOn
from decoding.drafters.draft_model import evidence_class
from decoding.drafters.reads_backlog import ReadsBacklog
from decoding.drafters.tree_reader import TreeReader
from decoding.sampling import Distribution, uniform
from decoding.shape import Siblings
from decoding.tree_shape import TreeShape


class SampledTree(ReadsBacklog[TreeReader]):
    """Draws each level of a shape in one pass, each token from the warped q_draft it hands on.

    A node has fewer children than planned only where its q_draft has no more tokens, and none where
    it ends the reply: both are settled by the tokens before them. n_vocab is the target's. shape:
    the most that is drafted, and what is until it is planned otherwise. A proposal has no more
    nodes than its limit says tokens, so that whether it fits is known before it is drawn.
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
        """Draw this shape from the next proposal on, cut to what is the most."""
        self._shape = shape.within(self.largest.nodes, self.largest.depth)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on
        shape = self._shape.within(min(limit, self._reader.room(history)), limit)
        if shape.nodes == 0:
            return NO_DRAFT
        tokens: list[int] = []
        parents: list[int] = []
        distributions: list[Distribution] = []
        drawn = {-1: -1}  # nodes of the draft by those of the shape
        laws = {-1: self._law(self._reader.top(history)[0], history, ())}
        numbers = {-1: -1}  # under which nodes of the draft were run
        for level in shape.levels:
            for parent, ranks in groupby(level, key=shape.parents.__getitem__):
                above = drawn.get(parent)
                if above is None or above not in laws:
                    continue
                siblings = _distinct(laws[above], self._sampler.drafting)
                for node, token in zip(ranks, siblings, strict=False):
                    drawn[node] = len(tokens)
                    tokens.append(token)
                    parents.append(above)
                    distributions.append(laws[above])
            inner = [drawn[node] for node in level if node in shape.inner and node in drawn]
            inner = [node for node in inner if tokens[node] not in self._end_tokens]
            if not inner:
                break
            found, rows = self._reader.level(
                [tokens[node] for node in inner], [numbers[parents[node]] for node in inner]
            )
            numbers.update(zip(inner, found, strict=True))
            for node, row in zip(inner, rows, strict=True):
                path = [tokens[above] for above in path_to(node, parents)]
                laws[node] = self._law(row, history, path)
        confidence = tuple(law.of(token) for law, token in zip(distributions, tokens, strict=True))
        return Draft(
            tuple(tokens),
            self.name,
            confidence,
            tuple(distributions),
            tuple(map(evidence_class, confidence)),
            parents=tuple(parents),
            siblings=Siblings.WITHOUT_REPLACEMENT,
        )

    def _law(
        self, row: NDArray[np.float32], history: Sequence[int], path: Sequence[int]
    ) -> Distribution:
        return self._sampler.distribution(row, history, path)


def _distinct(law: Distribution, generator: np.random.Generator) -> Iterator[int]:
    """Tokens of a law, each drawn from what those before it left; ends when none is left."""
    left = law.probabilities.copy()
    while (total := left.sum()) > 0.0:
        token = Distribution(law.ids, left / total).draw(uniform(generator))
        yield token
        left[law.ids.searchsorted(token)] = 0.0
