"""Context of MLX: one token sequence with its caches."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn

from backends.base import (
    CacheState,
    DeviceSampling,
    Logits,
    ModelError,
    OutOfMemoryError,
    RollbackRefusedError,
    check_truncation,
)
from backends.base.parent_array import check_branches, is_path, is_tree
from backends.hardware.host import available_memory
from backends.mlx.caches.layer_caches import evaluate, leaves, lengths, make_caches, pack, unpack
from backends.mlx.caches.next_pass import NextPass
from backends.mlx.caches.tree_batch import TreePass, tree_refusal
from backends.mlx.sampling.mlx_sampling import MlxSampling

MAX_LOGITS = 64
"""Most rows of logits of one forward pass."""


class MlxContext:
    """Context of a loaded model. To be used only by the thread that loaded the model."""

    def __init__(
        self,
        model: nn.Module,
        *,
        n_vocab: int,
        n_ctx: int,
        n_chunk: int,
        kv_bytes_per_token: int,
        can_roll_back: bool,
        on_close: Callable[["MlxContext"], None],
    ) -> None:
        self._model: nn.Module | None = model
        self._caches: list[Any] = make_caches(model)
        self._on_close = on_close
        self._n_vocab = n_vocab
        self.n_ctx = n_ctx
        self.n_chunk = n_chunk
        self.max_logits = self.max_branches = min(MAX_LOGITS, n_chunk)
        self.kv_bytes_per_token = kv_bytes_per_token
        self.can_roll_back = can_roll_back
        self.tokens: list[int] = []
        self._next: NextPass | None = None
        self._tree: tuple[TreePass, list[int]] | None = None
        """Uncommitted tree with its tokens."""
        self._tree_refusal: str | None = None
        """None until first needed: finding out takes passes."""
        self.device_sampling: DeviceSampling | None = MlxSampling(self)

    @property
    def length(self) -> int:
        return len(self.tokens)

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        count = len(tokens)
        assert 0 < count <= self.n_chunk, "prefill goes in pieces of n_chunk"
        assert 0 <= n_logits <= min(count, self.max_logits)
        with self.growing(count):
            rows = self.logits(mx.array(list(tokens)), n_logits)
            evaluate(self._caches, rows)
        self.tokens.extend(tokens)
        return np.array(rows, copy=False)

    @contextmanager
    def growing(self, count: int) -> Generator[None]:
        """Guard passes over count more tokens; if one fails, the context is empty.

        Raises:
            ModelError: they do not fit, or the engine failed.
        """
        if self.length + count > self.n_ctx:
            raise ModelError(
                f"{count} tokens do not fit after {self.length:,}",
                f"the context holds {self.n_ctx:,}",
            )
        try:
            yield
        except (RuntimeError, ValueError) as error:
            self._forget_all()
            raise ModelError("the model could not process these tokens", str(error)) from error

    def logits(self, tokens: mx.array, n_logits: int) -> mx.array:
        """Lazy float32 logits of the last n_logits of a pass over tokens, shape (count,).

        Logits are computed only for the last tokens: those of a whole prompt would be huge.
        """
        silent = tokens.size - n_logits
        if silent:
            self._run(tokens[:silent])
            evaluate(self._caches)
        return self._run(tokens[silent:]) if n_logits else mx.zeros((0, self._n_vocab))

    def _run(self, tokens: mx.array) -> mx.array:
        self._drop_unsettled()
        return self._logits(tokens[None], self._caches)[0]

    def _logits(self, tokens: mx.array, caches: Sequence[Any]) -> mx.array:
        assert self._model is not None, "the context is closed"
        return self._model(tokens, cache=caches).astype(mx.float32)

    @property
    def can_verify_tree(self) -> bool:
        return not self.tree_refusal

    @property
    def tree_refusal(self) -> str:
        if self._tree_refusal is None:
            assert self._model is not None, "the context is closed"
            model = self._model
            self._tree_refusal = tree_refusal(self._logits, lambda: make_caches(model))
        return self._tree_refusal

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        assert self.can_verify_tree, self.tree_refusal
        self._drop_unsettled()
        self._tree = TreePass(self._caches, self.length), []
        return self.grow_tree(tokens, parents)

    def grow_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        assert self._tree is not None, "no tree was run"
        assert 0 < len(tokens) == len(parents) <= self.max_logits
        tree, nodes = self._tree
        together = [*tree.parents, *parents]
        assert is_tree(together)
        try:
            check_branches(together, self.max_branches)
            with self.growing(len(together)):
                caches = tree.lend(parents)
                rows = self._logits(mx.array(list(tokens))[:, None], caches)[:, 0]
                evaluate(self._caches, rows)
        except ModelError:
            self._drop_unsettled()
            raise
        nodes.extend(tokens)
        return np.array(rows, copy=False)

    def commit(self, path: Sequence[int]) -> None:
        assert self._tree is not None, "no tree was run"
        (tree, tokens), self._tree = self._tree, None
        assert is_path(path, tree.parents)
        tree.keep(path)
        self.tokens.extend(tokens[node] for node in path)

    def logits_of(self, token: int) -> mx.array:
        """Lazy logits of a pass over one token, prepared already if it was foreseen."""
        prepared = self._next.take(token) if self._next is not None else None
        self._next = None
        return self._run(mx.array([token])) if prepared is None else prepared

    def foresee(self, token: mx.array) -> None:
        """Prepare the pass over a token, shape (1,), that is still being computed."""
        if self.can_roll_back and self.length + 2 < self.n_ctx:
            self._next = NextPass(leaves(self._caches), token, self._run)

    def _drop_unsettled(self) -> None:
        """Drop a prepared pass and an uncommitted tree."""
        if self._next is not None:
            self._next.drop()
            self._next = None
        if self._tree is not None:
            self.commit(())

    def truncate(self, length: int) -> None:
        if self._tree is not None:
            self.commit(())
        check_truncation(length, len(self.tokens))
        if length == len(self.tokens):
            return
        self._drop_unsettled()
        if length == 0:
            self._forget_all()
            return
        if not self.can_roll_back:
            raise RollbackRefusedError(
                f"the context cannot go back from {len(self.tokens):,} to {length:,} tokens",
                "this model does not keep one entry per token",
            )
        for cache in self._caches:
            cache.trim(len(self.tokens) - length)
        del self.tokens[length:]

    def _forget_all(self) -> None:
        assert self._model is not None, "the context is closed"
        self._next = self._tree = None
        self._caches = make_caches(self._model)
        self.tokens.clear()

    def save(self) -> CacheState:
        self._drop_unsettled()
        size = sum(cache.nbytes for cache in self._caches)
        if size > available_memory() // 2:
            raise OutOfMemoryError(
                "the cache cannot be saved",
                f"a copy of {size / 1e6:,.0f} MB needs more free memory",
            )
        return pack(self._caches)

    def restore(self, tokens: Sequence[int], state: CacheState) -> None:
        self._forget_all()
        try:
            unpack(self._caches, state)
            agree = lengths(self._caches) <= {len(tokens)}
            if not 0 < len(tokens) <= self.n_ctx or not agree:
                raise ModelError("the saved cache cannot be used", "it holds other tokens")
        except ModelError:
            self._forget_all()
            raise
        self.tokens.extend(tokens)

    def close(self) -> None:
        if self._model is None:
            return
        self._model = None
        self._next = self._tree = None
        self._caches.clear()
        self._on_close(self)
        mx.clear_cache()
