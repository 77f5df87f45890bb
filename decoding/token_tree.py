"""Builder of a tree of tokens whose branches share their first tokens."""

from collections.abc import Sequence


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
