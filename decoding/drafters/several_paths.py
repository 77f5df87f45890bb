"""Multi-draft: a drafter model samples several lines independently, and one of them is sent."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from backends.base import Context
from decoding.draft import NO_DRAFT, Draft, KeepOn, SampledLine, with_q_draft
from decoding.drafters.base import ReadsBacklog
from decoding.drafters.trees import TreeReader
from decoding.sampling.distribution import Distribution, uniform

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
# After SpecTr-GBV (arXiv 2604.25925), with the selection of `decoding.drafters.several_paths`:
# the target verifies a single line, so that the others cost drafter time alone.

Prefix = tuple[int, ...]


class SeveralPaths(ReadsBacklog[TreeReader]):
    """Samples lines of one length and proposes the one whose tokens its model finds likeliest.

    A line is shorter only where a token ends the reply, or the grammar fails. Common prefixes are
    run once. Each token comes with its distribution given the selection. n_vocab is the target's.
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
        self.paths = paths
        self._length = length
        self._end_tokens = end_tokens

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
            level = [line for line in whole if line[-1] not in self._end_tokens]
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
