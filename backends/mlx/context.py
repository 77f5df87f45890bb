"""Context of MLX: one token sequence with its caches."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import copy
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import mlx.core as mx
import numpy as np
from mlx import nn

from backends.base import (
    NO_COPIES,
    CacheState,
    Context,
    DeviceSampling,
    Logits,
    ModelError,
    ModelInfo,
    OutOfMemoryError,
    Rollback,
    RollbackRefusedError,
    check_room,
    check_truncation,
)
from backends.base.parent_array import check_branches, is_path, is_tree
from backends.files.mlx_folder import COPIES
from backends.hardware.host import available_memory
from backends.heads.hidden_states import HiddenStates
from backends.mlx.caches import (
    TreePass,
    evaluate,
    leaves,
    lengths,
    make_caches,
    pack,
    tree_refusal,
    unpack,
)
from backends.mlx.device_sampling import MlxSampling
from backends.mlx.layer_taps import Inputs, LayerTaps
from backends.mlx.running_state import CallLog, RunningState, recording_view


class NextPass:
    """Lazy pass over one token whose id is not known yet.

    Building the graph of a pass takes Python a few hundredths of a token's time, during which the
    device would be idle. If another pass is needed instead, this one is dropped and its caches are
    restored.
    """

    def __init__(
        self, caches: Iterable[Any], token: mx.array, run: Callable[[mx.array], mx.array]
    ) -> None:
        # Copying an array copies a reference: in-place assignment leaves the copies unchanged.
        self._before = [
            (cache, copy.copy(cache.keys), copy.copy(cache.values), cache.offset)
            for cache in caches
        ]
        self._token = token
        self._logits = run(token)

    def take(self, token: int) -> mx.array | None:
        """Logits, shape (1, n_vocab), if the pass is over this token; otherwise it is dropped."""
        if self._token.item() != token:
            self.drop()
            return None
        self._before.clear()  # otherwise the device would copy each cache to write a token
        return self._logits

    def drop(self) -> None:
        for cache, keys, values, offset in self._before:
            cache.keys, cache.values, cache.offset = keys, values, offset
        self._before.clear()


MAX_LOGITS = 64

_ONE_LINE = "keeps a running state, which cannot follow several branches"

_CHECKPOINTS_SHARE = 16
"""Free bytes per byte of checkpoints of a running state. A guess; not measured."""


class MlxContext:
    """Context of a loaded model. To be used only by the thread that loaded the model."""

    exact_batch = 0  # kernels are chosen by the length of each pass
    stops_passes = False  # the engine runs what it was given to its end

    def __init__(
        self,
        model: nn.Module,
        info: ModelInfo,
        *,
        n_ctx: int,
        n_chunk: int,
        kv_bytes_per_token: int,
        state_bytes: int,
        drafts: bool,
        on_close: Callable[["MlxContext"], None],
    ) -> None:
        self._model: nn.Module | None = model
        self._caches: list[Any] = []
        self._log = CallLog() if info.rollback is Rollback.BOUNDED else None
        self._recorded = model if self._log is None else recording_view(model, self._log)
        """The model as passes over several tokens run it."""
        self._state: RunningState | None = None
        self.taps = LayerTaps()
        self._readers = WeakSet[Context]()
        self._on_close = on_close
        self._n_vocab = info.n_vocab
        self.n_ctx = n_ctx
        self.n_chunk = n_chunk
        self.max_logits = self.max_branches = min(MAX_LOGITS, n_chunk)
        self._most_taken_back = self.max_logits if drafts else 0
        """Tokens of the longest pass before which the running state is kept."""
        self.kv_bytes_per_token = kv_bytes_per_token
        self.can_roll_back = info.rollback is Rollback.ANY
        self.draft_refusal = info.rollback_refusal
        self.state_bytes = 0
        if self._log is not None:
            self.draft_refusal = "" if drafts else NO_COPIES
            self.state_bytes = (COPIES if drafts else 1) * state_bytes
        self.saved_state_bytes = state_bytes
        self.tokens: list[int] = []
        self._next: tuple[NextPass, Inputs] | None = None
        """Prepared pass with what it leaves for heads."""
        self._tree: tuple[TreePass, list[int]] | None = None
        self._tree_refusal: str | None = None
        """None until first needed: finding out takes passes."""
        self.device_sampling: DeviceSampling | None = MlxSampling(self)
        self._forget_all()

    @property
    def length(self) -> int:
        return len(self.tokens)

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        count = len(tokens)
        assert 0 < count <= self.n_chunk, "prefill goes in pieces of n_chunk"
        assert 0 <= n_logits <= min(count, self.max_logits)
        with self.growing(count):
            rows = self.logits(mx.array(list(tokens)), n_logits)
            evaluate(self._caches, rows, *self.unread)
        self.passed(tokens)
        return np.array(rows, copy=False)

    @property
    def max_rollback(self) -> int:
        if self._state is not None:
            return max(self._most_taken_back - 1, 0)
        return self.n_ctx if self.can_roll_back else 0

    def rollback_to(self, length: int) -> int:
        length = min(length, self.length)
        if self.can_roll_back or length == self.length:
            return length
        return self._state.rollback_to(length) if self._state is not None else 0

    def checkpoint(self, *, is_brief: bool = False) -> None:
        if self._state is not None:
            self._drop_unsettled()
            self._state.checkpoint(is_brief=is_brief)

    @contextmanager
    def growing(self, count: int) -> Generator[None]:
        """Guard passes over count more tokens; if one fails, the context is empty."""
        check_room(self, count)
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
            evaluate(self._caches, *self.unread)
        return self._run(tokens[silent:]) if n_logits else mx.zeros((0, self._n_vocab))

    def _run(self, tokens: mx.array) -> mx.array:
        self._drop_unsettled()
        if self._state is None:
            return self._logits(tokens[None], self._caches)[0]
        with self._state.passing(tokens.size):
            return self._logits(tokens[None], self._caches)[0]

    def _read_again(self, state: RunningState) -> None:
        """Read what a rollback left unread: at once, so that it counts as a cost of the draft."""
        unread = self.tokens[state.read :]
        if unread:
            with self.growing(0):
                with state.passing(len(unread)):
                    self._logits(mx.array([unread]), self._caches)
                evaluate(self._caches)
                self.taps.drop()  # heads have the rows of these tokens

    def _logits(self, tokens: mx.array, caches: Sequence[Any]) -> mx.array:
        model = self._recorded if tokens.size > 1 else self._model  # of one nothing is rerun
        assert model is not None, "the context is closed"
        return self.taps.run(model, tokens, caches).astype(mx.float32)

    @property
    def can_verify_tree(self) -> bool:
        return not self.tree_refusal

    @property
    def tree_refusal(self) -> str:
        if self._state is not None:
            return _ONE_LINE
        if self._tree_refusal is None:
            self._tree_refusal = tree_refusal(self._logits, lambda: make_caches(self.model))
            self.taps.drop()
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
                evaluate(self._caches, rows, *self.unread)
        except ModelError:
            self._drop_unsettled()
            raise
        self.taps.passed_nodes(len(tokens))
        nodes.extend(tokens)
        return np.array(rows, copy=False)

    def commit(self, path: Sequence[int]) -> None:
        assert self._tree is not None, "no tree was run"
        (tree, tokens), self._tree = self._tree, None
        assert is_path(path, tree.parents)
        tree.keep(path)
        self.taps.committed(self.length, path)
        self.tokens.extend(tokens[node] for node in path)

    def logits_of(self, token: int) -> mx.array:
        """Lazy logits of a pass over one token, prepared already if it was foreseen."""
        if self._next is not None:
            (prepared, inputs), self._next = self._next, None
            logits = prepared.take(token)
            if logits is not None:
                self.taps.put_back(inputs)
                return logits
        return self._run(mx.array([token]))

    @property
    def unread(self) -> Sequence[mx.array]:
        """Lazy rows that passes leave for heads, to be computed along with them."""
        return self.taps.unread

    def passed(self, tokens: Sequence[int]) -> None:
        """Count in tokens whose passes are computed."""
        start = self.length
        self.tokens.extend(tokens)  # first: the caches hold them even if rows cannot be kept
        self.taps.passed(start, len(tokens))

    def foresee(self, token: mx.array) -> None:
        """Prepare the pass over a token, shape (1,), that is still being computed."""
        if self.can_roll_back and self.length + 2 < self.n_ctx:
            prepared = NextPass(leaves(self._caches), token, self._run)
            self._next = prepared, self.taps.take_last()

    def settled_caches(self) -> Sequence[Any]:
        """The caches of its layers; of each the first length entries are those of its tokens.

        A prepared pass and an uncommitted tree are dropped: to read the caches would compute them.
        """
        self._drop_unsettled()
        return self._caches

    def _drop_unsettled(self) -> None:
        if self._next is not None:
            self._next[0].drop()
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
        if self.rollback_to(length) != length:
            raise RollbackRefusedError(
                f"the context cannot go back from {len(self.tokens):,} to {length:,} tokens",
                "this model keeps a running state, which goes back only into the last pass",
            )
        self.taps.cut(length)
        if self._state is None:
            for cache in self._caches:
                cache.trim(len(self.tokens) - length)
            del self.tokens[length:]
            return
        with self.growing(0):
            self._state.go_back(length)
        del self.tokens[length:]
        self._read_again(self._state)

    def _forget_all(self) -> None:
        self._next = self._tree = None
        self.taps.forget_all()
        self._caches = make_caches(self.model)
        if self._log is not None:
            most_bytes = available_memory() // _CHECKPOINTS_SHARE
            self._state = RunningState(self._caches, self._log, self._most_taken_back, most_bytes)
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
        self.taps.begin(len(tokens))
        if self._state is not None:
            self._state.read = len(tokens)

    @property
    def model(self) -> nn.Module:
        assert self._model is not None, "the context is closed"
        return self._model

    def add_states(self, states: HiddenStates) -> None:
        """Let passes leave hidden states for a head, from the next one on."""
        self._drop_unsettled()
        self.taps.add(states, self.length)

    def remove_states(self, states: HiddenStates) -> None:
        if self._model is not None:
            self._drop_unsettled()
            self.taps.remove(states)

    def close_with(self, reader: Context) -> None:
        """Close a head's context before this one, which it reads."""
        self._readers.add(reader)

    def close(self) -> None:
        if self._model is None:
            return
        for reader in list(self._readers):
            reader.close()
        self._model = self._recorded = self._state = None
        self._next = self._tree = None
        self.taps.close()
        self._caches.clear()
        self._on_close(self)
        mx.clear_cache()
