"""Runs a tree in a drafter's context, one level per pass."""

from collections.abc import Iterator, Sequence

from backends.base import Context, Logits
from decoding.drafters.model.reader import Reader


class TreeReader:
    """A Reader that can also run several branches after the history.

    n_vocab is the target's: entries of a row past it are padding.
    """

    def __init__(self, context: Context, n_vocab: int) -> None:
        self._context = context
        self._n_vocab = n_vocab
        self._reader = Reader(context)
        self._length = 0
        """Number of tokens before the tree."""
        self._nodes: dict[tuple[int, int], int] = {}
        """Nodes of the pending tree by parent and token."""

    def begin(self, history: Sequence[int]) -> None:
        """Start with a history that need not continue the previous one."""
        self._settle(())
        self._reader.begin(history)

    def commit(self, history: Sequence[int]) -> None:
        """Mark history as final; a branch that it continues with is not read again."""
        self._settle(history)
        self._reader.commit(history)

    def rest(self) -> None:
        """Drop the pending tree: a pass of others would, of which nothing is known here."""
        self._settle(())

    def backlog(self, history: Sequence[int]) -> int:
        """Number of tokens to read; the last one of the history always counts."""
        return self._reader.backlog(history)

    def room(self, history: Sequence[int]) -> int:
        """Number of tokens for which the context has room after history."""
        return self._reader.room(history)

    def refusal(self, history: Sequence[int], needed: int = 1) -> str:
        """Why no draft can follow history; empty if there is room for the needed tokens."""
        return self._reader.refusal(history, needed)

    def read(self, history: Sequence[int]) -> Iterator[int]:
        """Read all of history if one more token would fit; yields tokens held after each chunk."""
        self._settle(history)
        yield from self._reader.read(history)

    def top(self, history: Sequence[int]) -> Logits:
        """The logits after history, shape (1, n_vocab)."""
        self._settle(history)
        *_, (_, rows) = self._reader.rows(history)
        self._length = len(history)
        return rows[:, : self._n_vocab]

    def level(self, tokens: Sequence[int], parents: Sequence[int]) -> tuple[list[int], Logits]:
        """Run distinct nodes below the history or below earlier nodes.

        parents: numbers of earlier nodes, -1 for the end of the history. Returns the numbers of the
        new nodes and the logits after each, shape (nodes, n_vocab), valid until the next level.

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
        """Keep the branch of the pending tree that history continues with."""
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
