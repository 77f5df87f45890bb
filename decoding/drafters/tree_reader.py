"""Runs a tree in a drafter's context, a level in a pass, and keeps what the model says of it."""

from collections.abc import Iterator, Sequence

from backends.base import Context, Logits
from decoding.drafters.reader import Reader


class TreeReader:
    """A Reader that can look further than the history, along several branches at once.

    n_vocab is the target's: entries of a row past it are padding.
    """

    def __init__(self, context: Context, n_vocab: int) -> None:
        self._context = context
        self._n_vocab = n_vocab
        self._reader = Reader(context)
        self._length = 0
        """Tokens of the history before the tree."""
        self._nodes: dict[tuple[int, int], int] = {}
        """Of the tree that waits for commit, by the node before each and its token."""

    def begin(self, history: Sequence[int]) -> None:
        """A history that need not continue the one before."""
        self._settle(())
        self._reader.begin(history)

    def commit(self, history: Sequence[int]) -> None:
        """What was said from here on is certain; the branch that was said need not be read."""
        self._settle(history)
        self._reader.commit(history)

    def backlog(self, history: Sequence[int]) -> int:
        """Tokens it would have to read, the last of the history always among them."""
        return self._reader.backlog(history)

    def room(self, history: Sequence[int]) -> int:
        """How many tokens the context could take after history."""
        return self._reader.room(history)

    def refusal(self, history: Sequence[int], needed: int = 1) -> str:
        """Why no draft can follow history; empty where needed tokens have room."""
        return self._reader.refusal(history, needed)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Read all of history where a token more would fit; yields tokens held after each chunk."""
        self._settle(history)
        yield from self._reader.read(history)

    def top(self, history: Sequence[int]) -> Logits:
        """The logits after history, shape (1, n_vocab)."""
        self._settle(history)
        *_, (_, rows) = self._reader.rows(history)
        self._length = len(history)
        return rows[:, : self._n_vocab]

    def level(self, tokens: Sequence[int], parents: Sequence[int]) -> tuple[list[int], Logits]:
        """Run nodes below history or below others, no two of which are alike.

        Returns their numbers, which are parents of later ones (-1: the end of the history), and
        the logits after each, shape (nodes, n_vocab), valid until the next level.

        Raises:
            ModelError: the engine failed; the tree is dropped.
        """
        known, self._nodes = self._nodes, {}
        run = self._context.grow_tree if known else self._context.forward_tree
        rows = run(tokens, parents)
        added = list(range(len(known), len(known) + len(tokens)))
        known.update(zip(zip(parents, tokens, strict=True), added, strict=True))
        self._nodes = known
        return added, rows[:, : self._n_vocab]

    def _settle(self, history: Sequence[int]) -> None:
        """Keep of the tree what history goes on with, as far as it was run."""
        if not self._nodes:
            return
        path: list[int] = []
        for token in history[self._length :]:
            node = self._nodes.get((path[-1] if path else -1, token))
            if node is None:
                break
            path.append(node)
        self._nodes = {}
        self._context.commit(path)
