"""Multi-draft: a drafter model samples several lines independently, and one of them is sent.

After SpecTr-GBV (arXiv 2604.25925), with the selection of `decoding.verification.draft_selection`:
the target verifies a single line, so that the others cost drafter time alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from backends.base import Context
from decoding.draft import NO_DRAFT, Draft, KeepOn, with_q_draft
from decoding.drafters.model.planned import Growth
from decoding.drafters.model.reads_backlog import ReadsBacklog
from decoding.drafters.model.tree_reader import TreeReader
from decoding.estimation.cost import TreeSize
from decoding.forms import SampledLine
from decoding.sampling.distribution import Distribution, uniform
from decoding.tree_shape import TreeShape
from decoding.verification.draft_selection import select

Prefix = tuple[int, ...]


class SeveralPaths(ReadsBacklog[TreeReader]):
    """Samples lines of one length and proposes the one whose tokens its model finds likeliest.

    A line is shorter only where a token ends the reply, or the grammar fails. Common prefixes are
    run once. Each token comes with its distribution given the selection. n_vocab is the target's.
    length: the longest lines, drafted until plan sets another length.
    """

    is_free = False

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
        super().__init__(TreeReader(context, n_vocab))
        self.name = name
        self.largest = TreeSize(length, length)
        self.paths = paths
        self._length = length
        self._end_tokens = end_tokens

    def plan(self, shape: TreeShape, growth: Growth | None = None) -> None:
        """Draft lines as long as the shape is deep from the next proposal on."""
        del growth
        self._length = min(shape.depth, self.largest.depth)

    def refusal(self, history: Sequence[int]) -> str:
        """Why it cannot draft: no room for a token of each line; empty if it can."""
        return self._reader.refusal(history, needed=self.paths)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on
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
            level = [line for line in dict.fromkeys(lines) if self._goes_on(line, position)]
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

    def _goes_on(self, line: Prefix, position: int) -> bool:
        return len(line) == position + 1 and line[-1] not in self._end_tokens

    def _selected(self, lines: Sequence[Prefix], q_draft: Mapping[Prefix, Distribution]) -> Draft:
        index, distributions = select(lines, q_draft.__getitem__, by_likelihood)
        line = SampledLine(lines[index], distributions, candidates=self.paths)
        return with_q_draft(line, self.name)


def by_likelihood(prefix: Prefix, q_draft: Distribution) -> NDArray[np.int64]:
    """Token ids from the least likely to the likeliest."""
    del prefix
    return q_draft.ids[np.argsort(q_draft.probabilities, kind="stable")]
