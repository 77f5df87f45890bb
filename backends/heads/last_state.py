"""Heads that draft from a model's last state alone, in numpy, beside a context of any engine.

Medusa's heads read that state, Hydra's also the embeddings of the tokens since. What follows a
token is a function of these, so that such heads keep nothing of the text, and draft trees as they
do lines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.base import Context, Logits, Model, ModelError, check_room, check_truncation
from backends.base.parent_array import check_branches, is_path, is_tree
from backends.heads.head import HeadContext, LoadedLayers, head_info
from backends.heads.hidden_states import HiddenStates, Rows

Row = NDArray[np.float32]
"""Numbers of one token, shape (width,)."""

Embed = Callable[[Sequence[int]], Rows]
"""The model's embeddings of tokens as they are stored, shape (tokens, width)."""

_MOST = 64
"""Most tokens of a pass."""


@dataclass(frozen=True, slots=True)
class Place:
    """What is known after a token: the model's last state, and the tokens since."""

    state: Row
    tokens: tuple[int, ...] = ()


class LastStateNet:
    """The network: a gated layer for each token ahead, the last one for all further tokens."""

    def __init__(
        self,
        weights: Mapping[str, Any],
        embed: Embed,
        *,
        n_vocab: int,
        drafted: NDArray[np.int64] | None,
        epsilon: float,
    ) -> None:
        """drafted: the model's token of each of the head's; None for all, in their order."""
        self._weights = weights
        self._embed = embed
        self._epsilon = epsilon
        self._drafted = slice(None) if drafted is None else drafted
        self._heads = sum(name.endswith(".input.weight") for name in weights)
        self.width = len(weights["heads.0.down.weight"])
        self.n_vocab = n_vocab
        self.size = sum(one.nbytes for one in weights.values())
        self._reads_tokens = weights["heads.0.input.weight"].shape[1] > self.width

    def after(self, place: Place, token: int) -> Place:
        """The place after a token that follows another place."""
        return Place(place.state, (*place.tokens, token)[-self._heads :])

    def write(self, place: Place, row: Logits) -> None:
        """Write logits of what follows a place into a row, shape (n_vocab,), of minus infinity.

        Those of tokens that the head does not draft stay as they are.
        """
        read = [place.state, *(self._embed(place.tokens) if self._reads_tokens else ())]
        inner = _product(self._of(place, "input"), np.concatenate(read))
        normed = self._normed(inner, self._of(place, "norm"))
        gate = _product(self._of(place, "gate"), normed)
        gated = gate / (1.0 + np.exp(-gate)) * _product(self._of(place, "up"), normed)
        own = inner + _product(self._of(place, "down"), gated)
        found = self._normed(own, self._of(place, "output_norm"))
        row[self._drafted] = _product(self._weights["lm_head.weight"], found)

    def _of(self, place: Place, part: str) -> Any:
        return self._weights[f"heads.{len(place.tokens) - 1}.{part}.weight"]

    def _normed(self, row: Row, scales: Row) -> Row:
        return row / np.sqrt(np.square(row).mean() + np.float32(self._epsilon)) * scales


def _product(weights: Rows, row: Any) -> Any:
    """A matrix of (outputs, inputs) times a row, in this thread.

    It waits for memory, and BLAS for its threads, which a busy processor keeps: 16,384 outputs of
    576 took 0.9 ms, with BLAS 0.3 ms, or 40 ms beside other work (median of 15).
    """
    return np.einsum("ij,j->i", weights, row)


class LastStateContext(HeadContext):
    """Drafts from what the last passes of a model's context left.

    Where that is unknown, as after a restored state, it drafts from zeros.
    """

    kv_bytes_per_token = 0

    def __init__(
        self, net: LastStateNet, states: HiddenStates, target: Context, on_close: Callable[[], None]
    ) -> None:
        self._net: LastStateNet | None = net
        self._states = states
        self._on_close = on_close
        self.n_ctx = self.max_rollback = target.n_ctx
        self.n_chunk = self.max_logits = min(_MOST, target.n_ctx)
        self.can_verify_tree = target.can_verify_tree
        self.max_branches = self.n_chunk if self.can_verify_tree else 1
        self.tree_refusal = (
            target.tree_refusal and "drafts lines only, as its model verifies no tree"
        )
        self.tokens = []
        self._rows = np.empty((0, net.n_vocab), np.float32)
        self._nodes: list[Place] = []
        self._tree: tuple[list[int], list[int]] = [], []
        """Tokens and parents of the nodes of an uncommitted tree."""

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        assert 0 <= n_logits <= len(tokens) <= self.n_chunk
        check_room(self, len(tokens))
        self._drop_tree()
        self.tokens.extend(tokens)
        net, end = self._opened(), len(self.tokens)
        places = range(end - n_logits, end)
        return self._logits([net.after(self._before(at), self.tokens[at]) for at in places])

    def _logits(self, places: Sequence[Place]) -> Logits:
        net, count = self._opened(), len(places)
        if len(self._rows) < count:
            self._rows = np.full((count, net.n_vocab), -np.inf, np.float32)
        for place, row in zip(places, self._rows, strict=False):
            net.write(place, row)
        if places:
            self._states.release(self._states.end - self.n_chunk)
        return self._rows[:count]

    def _before(self, position: int) -> Place:
        """What the model left before a position, or before the tokens since then."""
        states, known = self._states, min(position, self._states.end)
        if known <= states.first:
            return Place(np.zeros(states.width, np.float32))
        return Place(states.rows(known - 1, known)[0], tuple(self.tokens[known:position]))

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        self._drop_tree()
        return self.grow_tree(tokens, parents)

    def grow_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        assert not self.tree_refusal, self.tree_refusal
        assert 0 < len(tokens) == len(parents) <= self.max_logits
        held, above = self._tree
        assert is_tree([*above, *parents])
        try:
            check_branches([*above, *parents], self.max_branches)
            check_room(self, len(held) + len(tokens))
        except ModelError:
            self._drop_tree()
            raise
        for token, parent in zip(tokens, parents, strict=True):
            before = self._nodes[parent] if parent >= 0 else self._before(len(self.tokens))
            self._nodes.append(self._opened().after(before, token))
        held.extend(tokens)
        above.extend(parents)
        return self._logits(self._nodes[-len(tokens) :])

    def commit(self, path: Sequence[int]) -> None:
        tokens, parents = self._tree
        assert tokens, "no tree was run"
        assert is_path(path, parents)
        self.tokens.extend(tokens[node] for node in path)
        self._drop_tree()

    def _drop_tree(self) -> None:
        self._nodes, self._tree = [], ([], [])

    def truncate(self, length: int) -> None:
        check_truncation(length, len(self.tokens))
        self._drop_tree()
        del self.tokens[length:]

    def _opened(self) -> LastStateNet:
        assert self._net is not None, "the context is closed"
        return self._net

    def close(self) -> None:
        if self._net is not None:
            self._net = None
            self._drop_tree()
            self._on_close()


class LastStateHead(LoadedLayers):
    """A loaded head; engines say what their contexts leave for it."""

    def __init__(self, net: LastStateNet, target: Model, context: Context, **own: Any) -> None:
        """own: facts of the head, as in head_info."""
        self._net: LastStateNet | None = net
        self.width = net.width
        numbers = net.size // np.dtype(np.float32).itemsize
        info = head_info(
            target.info,
            architecture="last_state",
            quantization="head",
            parameters=numbers,
            weight_bytes=net.size,
            **own,
        )
        super().__init__(target, context, info)

    def _opened(
        self, context: Context, states: HiddenStates, on_close: Callable[[], None]
    ) -> LastStateContext:
        assert self._net is not None, "the head is closed"
        key = object()

        def closed() -> None:
            self._contexts.pop(key, None)
            on_close()

        self._contexts[key] = opened = LastStateContext(self._net, states, context, closed)
        return opened

    def close(self) -> None:
        super().close()
        self._net = None
