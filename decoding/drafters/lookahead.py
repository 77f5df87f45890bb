"""Drafts from the model's own passes: Jacobi's guesses, and n-grams of such trajectories."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from backends.base import UsageError
from decoding.draft import NO_DRAFT, Draft, Drafter, KeepOn, PointMassLine, PointMassTree
from decoding.sampling.sampler import Sampler

# Jacobi decoding: the model's own tokens after a rejected guess are the next guess.
#
# Santilli et al. 2023 (arXiv 2305.10427), algorithm 1: all guessed tokens are replaced at once by
# the model's likeliest tokens, until they no longer change. Here a guess is a draft.

_STAYED_CONFIDENCE = (0.02, 0.15, 0.4, 0.6)
"""Prior acceptance of a guess by the number of passes over which it has not changed."""


class Jacobi(Drafter):
    """Proposes the model's likeliest tokens at these positions in its last pass over guesses."""

    name = "jacobi"

    def __init__(self, *, max_draft: int = 8) -> None:
        self._max_draft = max_draft
        self._forget()

    def _forget(self) -> None:
        self._start = 0
        """Position in the text of the first guess."""
        self._guesses: list[int] = []
        self._stayed: list[int] = []
        """Passes over which each guess has not changed; 0 for one that is not the model's."""

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._forget()

    def _catch_up(self, history: Sequence[int]) -> None:
        """Drop the guesses at positions that have been decided."""
        decided = len(history) - self._start
        del self._guesses[:decided], self._stayed[:decided]
        self._start = len(history)

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self._catch_up(history)
        count = 0
        for position in range(min(limit, self._max_draft)):
            if position == len(self._guesses):  # any token will do to begin with
                self._guesses.append(history[-1 - position % len(history)])
                self._stayed.append(0)
            count += 1
            evidence = self._stayed[position]
            if keep_on is not None and not keep_on(_STAYED_CONFIDENCE[evidence], evidence):
                break
        if count == 0:
            return NO_DRAFT
        tokens, evidence = tuple(self._guesses[:count]), tuple(self._stayed[:count])
        return Draft(
            PointMassLine(tokens),
            self.name,
            tuple(_STAYED_CONFIDENCE[stayed] for stayed in evidence),
            evidence,
            listener=partial(self._on_verified, tokens),
        )

    def _on_verified(self, drafted: Sequence[int], likeliest: NDArray[np.int64]) -> None:
        """Take the model's tokens at the same positions, and at one more, as the next guesses."""
        tokens: list[int] = likeliest.tolist()
        longest = len(_STAYED_CONFIDENCE) - 1
        self._stayed = [
            min(before + 1, longest) if token == guess else 1
            for token, guess, before in zip(tokens, drafted, self._stayed, strict=False)
        ] + [1]
        self._guesses = tokens


class TokenTree:
    """Tokens with the index of the parent of each, -1 for the end of the history."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    def add(self, branch: Sequence[int]) -> None:
        """Add a branch from the root, sharing the nodes that exist already."""
        node = -1
        for token in branch:
            node = self._share(token, node)

    def _share(self, token: int, parent: int) -> int:
        place = parent, token
        if place not in self._children:
            self._children[place] = self.append(token, parent)
        return self._children[place]

    def append(self, token: int, parent: int) -> int:
        """Add a node that no branch shares, and return its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1


_MOST_KEYS = 20_000
"""Most first tokens kept, the latest; about 10 MB."""

Ngram = tuple[int, ...]


class NgramPool:
    """The latest few continuations of each token."""

    def __init__(self, per_token: int) -> None:
        self._per_token = per_token
        self._continuations: dict[int, list[Ngram]] = {}

    def add(self, token: int, continuation: Ngram) -> None:
        known = self._continuations.pop(token, [])
        if continuation in known:
            known.remove(continuation)
        self._continuations[token] = [*known, continuation][-self._per_token :]
        if len(self._continuations) > _MOST_KEYS:
            del self._continuations[next(iter(self._continuations))]

    def after(self, token: int) -> Sequence[Ngram]:
        """Continuations of a token, the latest first."""
        return self._continuations.get(token, [])[::-1]


# Lookahead decoding: Jacobi trajectories run beside the text, and their n-grams are drafted.
#
# Fu et al. 2024 (arXiv 2402.02057), section 3: a window of trajectories, one column for each of the
# next positions, advances by a row at every pass; each column with its new row is an n-gram, and
# those that begin with the last token are verified in the same pass.

_EXAMPLE = "Example: --draft lookahead:w=5,n=3,g=3"
_CONFIDENCE = 0.3
"""Prior acceptance of a pool token: between the measured 0.40 of first and 0.24 of second ones."""


@dataclass(frozen=True, slots=True)
class LookaheadShape:
    """Columns of the window, length of an n-gram, and the most n-grams verified in one pass.

    Raises:
        UsageError: one is too small.
    """

    window: int = 5
    ngram: int = 3
    pool: int = 3

    @staticmethod
    def parse(text: str) -> "LookaheadShape":
        """Parse a text like w=5,n=3,g=3; parts may be omitted.

        Raises:
            UsageError: the text has another form.
        """
        names = {"w": "window", "n": "ngram", "g": "pool"}
        values: dict[str, int] = {}
        for part in filter(None, text.split(",")):
            read = re.fullmatch(r"\s*([wng])\s*=\s*(\d{1,9})\s*", part)
            if read is None or names[read[1]] in values:
                raise UsageError(
                    f"lookahead:{text} cannot be read",
                    f"{part.strip()!r} is not one of w=N, n=N and g=N, each once",
                    _EXAMPLE,
                )
            values[names[read[1]]] = int(read[2])
        return LookaheadShape(**values)

    def __post_init__(self) -> None:
        if self.window < 1 or self.ngram < 2 or self.pool < 1:
            raise self._refused("w, the window, and g, the pool, are 1 or more, and n 2 or more")

    def check(self, most: int) -> None:
        """Check that a pass takes at most this many tokens.

        Raises:
            UsageError: it would take more.
        """
        if 1 + self.nodes > most:
            raise self._refused(
                f"a pass takes (w+g)·(n-1) = {1 + self.nodes} tokens, and may take at most {most}"
            )

    def _refused(self, why: str) -> UsageError:
        return UsageError(
            f"lookahead:w={self.window},n={self.ngram},g={self.pool} cannot be", why, _EXAMPLE
        )

    @property
    def depth(self) -> int:
        """The most tokens that one pass can accept."""
        return self.ngram - 1

    @property
    def nodes(self) -> int:
        """The most drafted and window tokens of one pass."""
        return self.window * self.depth - 1 + self.pool * self.depth


class Lookahead(Drafter):
    """Drafts n-grams of its pool as the branches of a tree, with the window in the same pass."""

    def __init__(self, shape: LookaheadShape, name: str = "lookahead") -> None:
        self.name = name
        self.shape = shape
        self._pool = NgramPool(shape.pool)
        self._random = np.random.default_rng(0)
        self._window: list[list[int]] = []
        """Columns of tokens, each one shorter than an n-gram."""
        self._start = 0
        """Position in the text of the first column's first token."""

    def begin(self, history: Sequence[int], sampler: Sampler) -> None:
        self._window = []
        self._start = len(history) - 1

    def _catch_up(self, history: Sequence[int]) -> None:
        """Align the columns with the text: the first begins with its last token."""
        passed = len(history) - 1 - self._start
        del self._window[:passed]
        self._start = len(history) - 1
        while len(self._window) < self.shape.window:
            positions = self._random.integers(len(history), size=self.shape.depth)
            self._window.append([history[position] for position in positions])
        self._window[0][0] = history[-1]

    def propose(self, history: Sequence[int], limit: int, keep_on: KeepOn | None = None) -> Draft:
        self._catch_up(history)
        tree = TokenTree()
        for continuation in self._pool.after(history[-1]):
            tree.add(continuation[:limit])
        drafted = len(tree.tokens)
        ends = self._add_window(tree)
        count = len(tree.tokens)
        if count == 0:
            return NO_DRAFT
        return Draft(
            PointMassTree(tuple(tree.tokens), tuple(tree.parents), count - drafted),
            self.name,
            (_CONFIDENCE,) * count,
            (0,) * count,
            listener=partial(self._on_verified, ends),
        )

    def _add_window(self, tree: TokenTree) -> list[int]:
        """Add the columns' first tokens as a line, and below each the rest of its column.

        The first column's first token is the last one of the text, which is no node. Returns the
        last node of each column, -1 for that token.
        """
        ends: list[int] = []
        first = -1
        for index, column in enumerate(self._window):
            if index > 0:
                first = tree.append(column[0], first)
            node = first
            for token in column[1:]:
                node = tree.append(token, node)
            ends.append(node)
        return ends

    def _on_verified(self, ends: Sequence[int], likeliest: NDArray[np.int64]) -> None:
        """Extend each column by the model's likeliest token, and drop its first token."""
        for column, end in zip(self._window, ends, strict=True):
            first, *rest = column
            column[:] = [*rest, int(likeliest[1 + end])]
            self._pool.add(first, tuple(column))
        self._start += 1
