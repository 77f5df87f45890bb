"""Rows of a block drafted in one pass, by how each depends on the tokens before it."""

from collections.abc import Sequence

import numpy as np

from backends.base import Block, Logits
from backends.base.hidden_states import Rows


def independent(rows: Logits) -> Block:
    """Rows that depend on the text before the block alone; shape (tokens, n_vocab).

    DFlash (arXiv 2602.06036).
    """
    return lambda drafted: rows[len(drafted)] if len(drafted) < len(rows) else None


def after_likeliest(rows: Logits) -> Block:
    """Rows each computed after the likeliest tokens of those before it; shape (tokens, n_vocab).

    DSpark. What is likely after another token they do not know, so that they end with it.
    """
    likeliest = rows.argmax(axis=1).tolist()

    def after(drafted: Sequence[int]) -> Logits | None:
        count = len(drafted)
        if count >= len(rows) or list(drafted) != likeliest[:count]:
            return None
        return rows[count]

    return after


def in_lattice(lattice: Rows, candidates: int, n_vocab: int, guessed: Sequence[int] = ()) -> Block:
    """Rows by scores of the candidates of a place after each candidate of the place before.

    DFlash2. lattice: row by place, of the ids of its candidates and, for each one of the place
    before, their scores; the first place has one token before it, whose scores come first. guessed:
    tokens of the first places.
    """

    def after(drafted: Sequence[int]) -> Logits | None:
        path = [*guessed, *drafted]
        if len(path) >= len(lattice):
            return None
        before = 0
        if path:
            found = np.flatnonzero(lattice[len(path) - 1, :candidates] == path[-1])
            if not len(found):
                return None
            before = int(found[0])
        place = lattice[len(path)]
        scores = place[candidates * (1 + before) :][:candidates]
        row = np.full(n_vocab, -np.inf, np.float32)
        row[place[:candidates].astype(np.int64)] = scores
        return row

    return after
