"""Context of llama.cpp: one token sequence with its KV cache."""

import ctypes
from collections.abc import Callable, Sequence
from typing import cast
from weakref import WeakSet

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import (
    CacheState,
    Context,
    Logits,
    ModelError,
    OutOfMemoryError,
    PassStoppedError,
    RollbackRefusedError,
    SpecchatError,
    check_room,
    check_truncation,
)
from backends.base.images import IMAGE_TOKENS
from backends.base.model import pass_is_stopped
from backends.hardware.host import available_memory
from backends.heads.hidden_states import HiddenStates
from backends.llamacpp.pass_callbacks import STOPPABLE, ChosenExperts, PassStopper
from backends.llamacpp.running_state import RunningState, bytes_of
from backends.llamacpp.tree_sequences import TreeContext, TreePass
from backends.llamacpp.vision import Chunk, HeldImages, Vision
from backends.streaming.streamed_weights import StreamedWeights

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false


_BLOCK = 64
"""Tokens of a pass from which on attention takes another kernel on the processor, which keeps its
sums in more bits: it moved the logits of SmolLM2-135M by up to 1.45."""

MAX_LOGITS = _BLOCK - 1
"""Most rows of logits of one forward pass, so that no draft is verified by that kernel; the engine
keeps a buffer of this size."""

GROUP = 4
"""Tokens that kernels process together; decoding/prefill.py has whole groups of them read."""

_ONE_LINE = "keeps a running state, which cannot follow several branches"
_NO_SLOT = 1
_ABORTED = 2
_INVALID = -1
_UNCHANGED = (_NO_SLOT, _INVALID)
"""Statuses of a pass that did not begin."""

_SEQUENCE = ctypes.c_int32(0)


class LlamaContext(TreeContext):
    """Context of a loaded model. Not to be used by two threads at once."""

    device_sampling = None

    def __init__(
        self,
        pointer: api.llama_context_p,
        memory: api.llama_memory_t,
        *,
        n_vocab: int,
        n_ctx: int,
        n_chunk: int,
        kv_bytes_per_token: int,
        state: RunningState | None,
        state_bytes: int,
        draft_refusal: str,
        on_close: Callable[["LlamaContext"], None],
        weights: StreamedWeights | None = None,
        choices: ChosenExperts | None = None,
        has_window: bool = False,
        is_on_processor: bool = False,
        vision: Vision | None = None,
    ) -> None:
        """Take over an open context.

        state_bytes: of one copy of the state. has_window: whether layers see only the last tokens.
        is_on_processor: whether all passes run there, where the engine lets them be stopped.
        """
        self.pointer: api.llama_context_p | None = pointer
        self._memory = memory
        self._batch = api.llama_batch_init(n_chunk, 0, 1)
        self._on_close = on_close
        self._n_vocab = n_vocab
        self.n_ctx = n_ctx
        self.n_chunk = n_chunk
        self.max_logits = self.max_branches = min(MAX_LOGITS, n_chunk)
        self.kv_bytes_per_token = kv_bytes_per_token
        self.state_bytes = state_bytes * (1 + state.depth) if state else 0
        self.saved_state_bytes = state_bytes
        self.draft_refusal = draft_refusal
        self.tree_refusal = "" if state is None else _ONE_LINE
        self._state = state
        self._images = HeldImages(vision) if vision else None
        if state is not None:
            state.position = self._position
        self.tokens: list[int] = []
        self._views: dict[int, Logits] = {}
        """Views of the engine's logits, by number of rows."""
        self._viewed = 0
        """Address of the viewed logits."""
        self._fill_constant_part()
        self._weights = weights
        self._choices = choices
        self._has_window = has_window
        self._restored = 0
        """Tokens of a restored state that lacks entries which none of its own tokens sees."""
        self._states: list[HiddenStates] = []
        self._readers: WeakSet[Context] = WeakSet()
        is_even = is_on_processor and state is None and n_chunk >= _BLOCK
        self.exact_batch = _BLOCK if is_even else 0
        self.stops_passes = weights is not None or is_on_processor
        self._stopper: PassStopper | None = None
        if weights is not None:
            self._callback = _follow_passes(pointer, weights)
        elif is_on_processor:
            self._stopper = PassStopper(pointer)

    def _fill_constant_part(self) -> None:
        """Create views of the batch, to be written once per step instead of once per token."""
        batch, n_chunk = self._batch, self.n_chunk
        self._batch_tokens = np.ctypeslib.as_array(batch.token, shape=(n_chunk,))
        self._batch_positions = np.ctypeslib.as_array(batch.pos, shape=(n_chunk,))
        self._batch_logits = np.ctypeslib.as_array(batch.logits, shape=(n_chunk,))
        np.ctypeslib.as_array(batch.n_seq_id, shape=(n_chunk,))[:] = 1
        for index in range(n_chunk):
            batch.seq_id[index][0] = 0

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def can_roll_back(self) -> bool:
        return self._state is None and not self._has_window  # a restored one goes back to nothing

    @property
    def max_rollback(self) -> int:
        return self.n_ctx if self._state is None else self._state.depth

    def rollback_to(self, length: int) -> int:
        length = min(length, len(self.tokens))
        if length < self._restored:
            return 0  # what lies before would see those entries
        if self._state is None:
            return length
        ran = self._ran(length)
        reached = self._state.rollback_to(ran, self._ran(len(self.tokens)))
        return length if reached == ran else reached

    def _ran(self, length: int) -> int:
        """How many of so many tokens the engine has run: all but those of an image in part."""
        return self._images.ran(length) if self._images else length

    def _position(self, length: int) -> int:
        """The engine's position after so many tokens."""
        return self._images.position(length) if self._images else length

    @property
    def can_verify_tree(self) -> bool:
        return not self.tree_refusal

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        self._drop_tree()
        count, start = len(tokens), len(self.tokens)
        assert 0 < count <= self.n_chunk, "prefill goes in pieces of n_chunk"
        assert 0 <= n_logits <= min(count, self.max_logits)
        check_room(self, count)
        ran = self._ran(start)
        if self._images is None or (ran == start and max(tokens) < IMAGE_TOKENS):
            error = self._run(tokens, n_logits)
        else:
            error = self._run_with_images(self._images, tokens, n_logits)
        if error is not None:
            raise error
        if n_logits == 0:
            return np.empty((0, self._n_vocab), dtype=np.float32)
        return self._rows(n_logits)

    def _run(self, tokens: Sequence[int], n_logits: int) -> SpecchatError | None:
        """Append tokens of text; why that failed, None if it did not."""
        start = len(self.tokens)
        self._fill(tokens, self._position(start), n_logits)
        assert self.pointer is not None, "the context is closed"
        if self._weights is not None:
            self._weights.begin_pass()
        status, error = self._ended(self._decode(self.pointer, start, n_logits))
        if error is not None:
            self._undo(start, status)
            return error
        self.tokens.extend(tokens)
        for states in self._states:
            states.passed(start, len(tokens))
        if self._state is not None:
            self._state.passed(len(tokens))
        return None

    def _run_with_images(
        self, images: HeldImages, tokens: Sequence[int], n_logits: int
    ) -> SpecchatError | None:
        """Append tokens of which some are an image's; those of one in part wait for its others."""
        start = len(self.tokens)
        begun = self.tokens[self._ran(start) :]
        passes, error = images.divided(tokens, start, GROUP, self.exact_batch), None
        del self.tokens[start - len(begun) :]
        given = [*begun, *tokens]
        for at, upto, chunk in passes:
            piece = given[at - start + len(begun) : upto - start + len(begun)]
            is_last = upto == start + len(tokens)
            if chunk is None:
                error = self._run(piece, n_logits if is_last else 0)
            elif len(piece) == len(chunk.tokens):
                assert not (is_last and n_logits), "no text follows an image"
                error = self._run_image(chunk)
            else:
                self.tokens.extend(piece)
            if error is not None:
                break
        if error is not None:
            self._undo(start - len(begun), _ABORTED)
            if self._state is None or len(self.tokens) == start - len(begun):
                self.tokens[start - len(begun) :] = begun
            images.cut(len(self.tokens))
        return error

    def _run_image(self, chunk: Chunk) -> SpecchatError | None:
        """Append all of an image; why that failed, None if it did not."""
        assert self._images is not None
        assert self.pointer is not None, "the context is closed"
        start, error = len(self.tokens), None
        try:
            rows = self._images.vision.rows(chunk)
        except ModelError as failure:
            return failure
        places = chunk.places + np.int32(self._position(start))
        most = len(rows) if chunk.is_whole else self.n_chunk
        if most > api.llama_n_ubatch(self.pointer):  # else the engine ends the process
            return ModelError("the image is too large", f"it takes one pass of {most:,} tokens")
        api.llama_set_causal_attn(self.pointer, not chunk.is_whole)
        for at in range(0, len(rows), most):
            part = np.ascontiguousarray(rows[at : at + most])
            positions = np.ascontiguousarray(places[:, at : at + most])
            flags = np.zeros(len(part), np.int8)
            if self._weights is not None:
                self._weights.begin_pass()
            batch = api.llama_batch(
                n_tokens=len(part),
                embd=part.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
                pos=positions.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
                logits=flags.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
            )
            _, error = self._ended(api.llama_decode(self.pointer, batch))
            if error is not None:
                break
            if self._state is not None:
                self._state.passed(len(part))
        api.llama_set_causal_attn(self.pointer, True)
        if error is None:
            self.tokens.extend(chunk.tokens)
            for states in self._states:
                states.begin(len(self.tokens))  # what a head would read is not kept of rows
        return error

    def _decode(self, pointer: api.llama_context_p, start: int, n_logits: int) -> int:
        """Run the batch at the position start, and return the engine's status.

        A pass over several tokens of a prompt may be stopped, unless that would lose a running
        state.
        """
        if self._stopper is None or self._batch.n_tokens < STOPPABLE or n_logits > 1:
            return api.llama_decode(pointer, self._batch)
        if self._state is not None and not self._state.is_held(start):
            return api.llama_decode(pointer, self._batch)
        with self._stopper.watching():
            return api.llama_decode(pointer, self._batch)

    def _ended(self, status: int) -> tuple[int, SpecchatError | None]:
        """The status of a pass that has ended, and why it failed, None if it did not.

        One that was interrupted inside was stopped.
        """
        if self._choices is not None and self._choices.was_interrupted:
            self._choices.was_interrupted, status = False, _ABORTED
        fault = None
        if self._weights is not None:
            fault = self._weights.end_pass(is_whole=status == 0)
        return status, fault or (_failure(status) if status else None)

    def _undo(self, length: int, status: int) -> None:
        """Remove what a failed pass left behind; a running state goes back to a checkpoint.

        The engine seems to undo a short pass, but leaves the state as the pass left it.
        """
        if self._state is None:
            api.llama_memory_seq_rm(self._memory, 0, self._position(length), -1)
        elif status not in _UNCHANGED:
            self._forget_after(self._state.recover(length))

    def _fill(self, tokens: Sequence[int], start: int, n_logits: int) -> None:
        count = len(tokens)
        self._batch.n_tokens = count
        if (
            count == 1
        ):  # nearly every step: filling a slice takes ten times as long as setting an item
            self._batch_tokens[0] = tokens[0]
            self._batch_positions[0] = start
            self._batch_logits[0] = n_logits
            return
        self._batch_tokens[:count] = tokens
        self._batch_positions[:count] = np.arange(start, start + count)
        self._batch_logits[:count] = 0
        self._batch_logits[count - n_logits : count] = 1

    def _rows(self, count: int) -> Logits:
        assert self.pointer is not None, "the context is closed"
        rows = cast("ctypes._Pointer[ctypes.c_float]", api.llama_get_logits(self.pointer))  # noqa: SLF001
        address = ctypes.addressof(rows.contents)
        if address != self._viewed:  # the engine has moved them
            self._viewed, self._views = address, {}
        view = self._views.get(count)
        if view is None:  # creating one takes 0.08 ms with the processor's caches cold after a pass
            view = np.ctypeslib.as_array(rows, shape=(count, self._n_vocab))
            self._views[count] = view
        return view

    def _new_trees(self) -> TreePass:
        return TreePass(self._memory, self.max_logits, self.max_branches)

    def _run_nodes(self, tree: TreePass, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        assert self.pointer is not None, "the context is closed"
        assert 0 < len(tokens) == len(parents) <= self.max_logits
        if self._weights is not None:
            self._weights.begin_pass()
        _, error = self._ended(tree.decode(self.pointer, tokens, parents))
        if error is not None:
            self._drop_tree()
            raise error
        for states in self._states:
            states.passed_nodes(len(tokens))
        return self._rows(len(tokens))

    def commit(self, path: Sequence[int]) -> None:
        assert self._trees is not None, "no tree was run"
        for states in self._states:
            states.committed(len(self.tokens), path)
        self.tokens.extend(self._trees.keep(path))

    def truncate(self, length: int) -> None:
        self._drop_tree()
        check_truncation(length, len(self.tokens))
        if length == len(self.tokens):
            return
        held = len(self.tokens)
        reached = self._go_back(length) if self.rollback_to(length) == length else held
        self._forget_after(reached)
        if reached != length:
            raise RollbackRefusedError(
                f"the context cannot go back from {held:,} to {length:,} tokens",
                "this model keeps a running state instead of one entry per token",
            )

    def _forget_after(self, length: int) -> None:
        """Note that the engine holds no more than so many tokens."""
        del self.tokens[length:]
        if self._images is not None:
            self._images.cut(length)
        self._restored = min(self._restored, length)
        for states in self._states:
            states.cut(length)

    def add_states(self, states: HiddenStates) -> None:
        """Let passes leave hidden states for a head, from the next one on."""
        states.begin(len(self.tokens))
        self._states.append(states)

    def remove_states(self, states: HiddenStates) -> bool:
        """Leave them no longer; whether another head still reads what leaves the last layer."""
        self._states.remove(states)
        return any(not each.layers for each in self._states)

    @property
    def read_layers(self) -> frozenset[int]:
        return frozenset(layer for states in self._states for layer in states.layers)

    def _go_back(self, length: int) -> int:
        """Let the engine go back; the number of tokens that it holds then.

        Of an image that is cut it holds nothing.
        """
        ran, held = self._ran(length), len(self.tokens)
        if ran == (before := self._ran(held)):
            return length
        if self._state is not None:
            reached = self._state.go_back(ran, before)
            return {ran: length, before: held}.get(reached, reached)
        is_done = api.llama_memory_seq_rm(self._memory, 0, self._position(ran), -1)
        return length if is_done else held

    def checkpoint(self, *, is_brief: bool = False) -> None:
        length = len(self.tokens)
        if self._state is not None and self._ran(length) == length:
            self._state.checkpoint(length, is_brief=is_brief)

    def use_threads(self, count: int) -> None:
        if self.pointer is not None:  # else there is nothing to run
            api.llama_set_n_threads(self.pointer, count, count)

    def save(self) -> CacheState:
        self._drop_tree()
        assert self.pointer is not None, "the context is closed"
        size = api.llama_state_seq_get_size(self.pointer, _SEQUENCE)
        if size > available_memory() // 2:
            raise OutOfMemoryError(
                "the cache cannot be saved",
                f"a copy of {size / 1e6:,.0f} MB needs more free memory",
            )
        state = np.empty(size, dtype=np.uint8)
        if api.llama_state_seq_get_data(self.pointer, bytes_of(state), size, _SEQUENCE) != size:
            raise ModelError("the cache cannot be saved", "llama.cpp returned only a part of it")
        return state

    def restore(self, tokens: Sequence[int], state: CacheState) -> None:
        assert self.pointer is not None, "the context is closed"
        self.truncate(0)
        read = 0
        if self._images is not None:
            self._images.restored(tokens)
        if 0 < len(tokens) <= self.n_ctx:
            read = api.llama_state_seq_set_data(
                self.pointer, bytes_of(state), state.size, _SEQUENCE
            )
        last = api.llama_memory_seq_pos_max(self._memory, 0)
        if read != state.size or last != self._position(self._ran(len(tokens))) - 1:
            api.llama_memory_seq_rm(self._memory, 0, -1, -1)
            if self._images is not None:
                self._images.cut(0)
            raise ModelError("the saved cache cannot be used", "it is of another model or damaged")
        self.tokens.extend(tokens)
        for states in self._states:
            states.begin(len(tokens))
        self._restored = len(tokens) if self._has_window else 0

    def close_with(self, reader: Context) -> None:
        """Close a head's context before this one, which it reads or points to."""
        self._readers.add(reader)

    def close(self) -> None:
        if self.pointer is None:
            return
        for reader in list(self._readers):
            reader.close()
        api.llama_batch_free(self._batch)
        if self._trees is not None:
            self._trees.close()
        api.llama_free(self.pointer)
        self.pointer = None
        self._on_close(self)


def _follow_passes(pointer: api.llama_context_p, weights: StreamedWeights) -> object:
    """Let weights follow every pass, and passes be stopped; what is returned must be kept."""

    @api.ggml_abort_callback
    def is_stopped(_data: object) -> bool:  # asked after each operation, in the pass's own thread
        return weights.advance() or pass_is_stopped()

    api.llama_set_abort_callback(pointer, is_stopped, ctypes.c_void_p(0))
    return is_stopped


def _failure(status: int) -> SpecchatError:
    if status == _ABORTED:
        return PassStoppedError()
    why = "no free place in its cache" if status == _NO_SLOT else f"llama.cpp code {status}"
    return ModelError("the model could not process these tokens", why)
