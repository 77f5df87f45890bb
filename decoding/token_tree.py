"""Builds the tree of a draft, in which branches share the tokens they begin with."""

from collections.abc import Sequence


class TokenTree:
    """Tokens, and of each the index of the one before it, -1 for the end of the history."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._children: dict[tuple[int, int], int] = {}

    def add(self, branch: Sequence[int]) -> None:
        """Let a branch begin at the end of the history; what is there already is shared."""
        node = -1
        for token in branch:
            node = self.share(token, node)

    def share(self, token: int, parent: int) -> int:
        """The index of one token after another, added unless it is there already."""
        place = parent, token
        if place not in self._children:
            self._children[place] = self.append(token, parent)
        return self._children[place]

    def append(self, token: int, parent: int) -> int:
        """Add one token after another, shared with no branch, and give its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1
