"""Several lines of a drafter model, drawn independently, of which one is sent.

After SpecTr-GBV (arXiv 2604.25925), with the choice that `decoding.verification.paths` proves: the
target sees one line, so that the others cost the drafter alone.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from backends.base import Context
from decoding.cost import TreeSize
from decoding.draft import NO_DRAFT, Draft, KeepOn
from decoding.drafters.draft_model import evidence_class
from decoding.drafters.reads_backlog import ReadsBacklog
from decoding.drafters.tree_reader import TreeReader
from decoding.sampling import Distribution, uniform
from decoding.tree_shape import TreeShape
from decoding.verification.paths import choose

Prefix = tuple[int, ...]


class SeveralPaths(ReadsBacklog[TreeReader]):
    """Draws lines of one length and hands on the one that its model finds likeliest at each token.

    A line is shorter only where a token ends the reply. What lines begin with together is run once.
    Each token is handed on with the law that it has because its line was chosen. n_vocab is the
    target's. length: the most, and what is drawn until it is planned otherwise.
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

    def plan(self, shape: TreeShape) -> None:
        """Draw lines as long as the shape is deep from the next proposal on."""
        self._length = min(shape.depth, self.largest.depth)

    def refusal(self, history: Sequence[int]) -> str:
        """That its context has no room for a token of each line."""
        return self._reader.refusal(history, needed=self.paths)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        del keep_on
        length = min(limit, self._length, self._reader.room(history) // self.paths)
        if length <= 0:
            return NO_DRAFT
        laws: dict[Prefix, Distribution] = {}
        laws[()] = self._sampler.distribution(self._reader.top(history)[0], history)
        numbers: dict[Prefix, int] = {(): -1}
        paths: list[Prefix] = [()] * self.paths
        for place in range(length):
            paths = [self._longer(path, laws) for path in paths]
            level = [path for path in dict.fromkeys(paths) if self._goes_on(path, place)]
            if place + 1 == length or not level:
                break
            found, rows = self._reader.level(
                [path[-1] for path in level], [numbers[path[:-1]] for path in level]
            )
            for path, number, row in zip(level, found, rows, strict=True):
                numbers[path] = number
                laws[path] = self._sampler.distribution(row, history, path)
        return self._chosen(paths, laws)

    def _longer(self, path: Prefix, laws: dict[Prefix, Distribution]) -> Prefix:
        """A line with one token more, unless it has ended."""
        law = laws.get(path)
        return path if law is None else (*path, law.draw(uniform(self._sampler.drafting)))

    def _goes_on(self, path: Prefix, place: int) -> bool:
        return len(path) == place + 1 and path[-1] not in self._end_tokens

    def _chosen(self, paths: Sequence[Prefix], laws: dict[Prefix, Distribution]) -> Draft:
        index, distributions = choose(paths, laws.__getitem__, by_likelihood)
        tokens = paths[index]
        confidence = tuple(law.of(token) for law, token in zip(distributions, tokens, strict=True))
        return Draft(
            tokens,
            self.name,
            confidence,
            distributions,
            tuple(map(evidence_class, confidence)),
            paths=self.paths,
        )


def by_likelihood(prefix: Prefix, law: Distribution) -> NDArray[np.int64]:
    """The likeliest token last."""
    del prefix
    return law.ids[np.argsort(law.probabilities, kind="stable")]
