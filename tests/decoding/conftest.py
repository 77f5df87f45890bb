"""A backend of numbers alone: what it says next is a table's row for the last two tokens."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from backends.base import CacheState, Logits, RollbackRefusedError
from backends.base.parent_array import count_leaves, is_path, is_tree, path_to


def random_table(seed: int, n_vocab: int = 6, scale: float = 2.0) -> NDArray[np.float32]:
    """Logits after every pair of tokens; index n_vocab stands for no token."""
    shape = (n_vocab + 1, n_vocab, n_vocab)
    return np.random.default_rng(seed).normal(scale=scale, size=shape).astype(np.float32)


class FakeContext:
    """A backends.base.Context that holds its caller to the contract and counts its passes."""

    can_verify_tree = True
    tree_refusal = ""
    stops_passes = False
    exact_batch = 0
    device_sampling = None
    kv_bytes_per_token = 1

    def __init__(
        self,
        table: NDArray[np.float32],
        *,
        n_ctx: int = 64,
        n_chunk: int = 16,
        can_roll_back: bool = True,
        depth: int | None = None,
    ) -> None:
        """depth: of a context that is bounded, which then cannot roll back to any length."""
        self.table = table
        self.n_ctx = n_ctx
        self.n_chunk = n_chunk
        self.max_logits = self.max_branches = n_chunk
        self.can_roll_back = can_roll_back and depth is None
        self.max_rollback = depth if depth is not None else n_ctx if can_roll_back else 0
        self.state_bytes = self.saved_state_bytes = 0 if depth is None else 1
        self.draft_refusal = "" if self.max_rollback else "cannot go back"
        self.checkpoints: set[int] = set()
        self.brief = 0
        self._takeable = 0
        self.tokens: list[int] = []
        self.forwards: list[int] = []
        """The number of tokens of each pass."""
        self.truncations = 0
        """How often tokens were forgotten."""
        self.closed = False
        self._tree: tuple[Sequence[int], Sequence[int]] | None = None
        self._given = np.empty((0, table.shape[-1]), dtype=np.float32)

    @property
    def length(self) -> int:
        return len(self.tokens)

    def row(self, text: Sequence[int]) -> NDArray[np.float32]:
        """The logits after a text."""
        return self.table[text[-2] if len(text) > 1 else -1, text[-1]]

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        count = len(tokens)
        assert self._tree is None, "a tree waits for commit"
        assert 0 < count <= self.n_chunk, "prefill goes in pieces of n_chunk"
        assert 0 <= n_logits <= count
        assert self.length + count <= self.n_ctx, "more than the context holds"
        self._given.fill(np.nan)  # the rows given before are no longer valid
        self.forwards.append(count)
        self.tokens.extend(tokens)
        self._takeable = min(self.max_rollback, count - 1)
        ends = range(self.length - n_logits + 1, self.length + 1)
        rows = [self.row(self.tokens[:end]) for end in ends]
        self._given = np.array(rows, dtype=np.float32).reshape(n_logits, self.table.shape[-1])
        return self._given

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        self._tree = (), ()
        return self.grow_tree(tokens, parents)

    def grow_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        assert self._tree is not None, "no tree was run"
        assert 0 < len(tokens) == len(parents) <= self.max_logits
        first = len(self._tree[0])
        everything = [*self._tree[0], *tokens]
        self._tree = everything, [*self._tree[1], *parents]
        assert is_tree(self._tree[1])
        assert self.length + len(everything) <= self.n_ctx, "more than the context holds"
        assert count_leaves(self._tree[1]) <= self.max_branches, "more branches than it runs"
        self._given.fill(np.nan)
        self.forwards.append(len(tokens))
        paths = [path_to(node, self._tree[1]) for node in range(first, len(everything))]
        rows = [self.row([*self.tokens, *(everything[node] for node in path)]) for path in paths]
        self._given = np.array(rows, dtype=np.float32)
        return self._given

    def commit(self, path: Sequence[int]) -> None:
        assert self._tree is not None, "no tree was run"
        (tokens, parents), self._tree = self._tree, None
        assert is_path(path, parents)
        self.tokens.extend(tokens[node] for node in path)

    def truncate(self, length: int) -> None:
        self._tree = None
        assert 0 <= length <= self.length
        if length == self.length:
            return
        if length != self.rollback_to(length):
            raise RollbackRefusedError("it keeps a running state")
        self.truncations += 1
        self._takeable = 0
        del self.tokens[length:]
        self.checkpoints = {held for held in self.checkpoints if held <= length}
        self.brief = self.brief if self.brief <= length else 0

    def rollback_to(self, length: int) -> int:
        length = min(length, self.length)
        if self.can_roll_back or self.length - length <= self._takeable:
            return length
        known = (*self.checkpoints, self.brief)
        return max((held for held in known if held <= length), default=0)

    def checkpoint(self, *, is_brief: bool = False) -> None:
        if self.max_rollback and not self.can_roll_back:
            if is_brief:
                self.brief = self.length
            else:
                self.checkpoints.add(self.length)

    def save(self) -> CacheState:
        return np.array(self.tokens, dtype="<i4").view(np.uint8)

    def restore(self, tokens: Sequence[int], state: CacheState) -> None:
        self.tokens = list(tokens)

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="session")
def table() -> Callable[..., NDArray[np.float32]]:
    """Makes a random table: table(seed, n_vocab=6, scale=2.0)."""
    return random_table


@pytest.fixture(scope="session")
def fake_context() -> Callable[..., FakeContext]:
    """Opens a context on a table: fake_context(table, n_ctx=, n_chunk=, can_roll_back=)."""
    return FakeContext
