"""Sequences that share the cells of one context of llama.cpp, and passes over several of them."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import (
    CacheState,
    Logits,
    ModelError,
    OutOfMemoryError,
    PassStoppedError,
    RollbackRefusedError,
    SpecchatError,
    check_room,
    check_truncation,
)
from backends.base.model import pass_is_stopped
from backends.hardware import gpu_loss
from backends.hardware.host import available_memory
from backends.llamacpp import library
from backends.llamacpp.pass_callbacks import STOPPABLE, ChosenExperts, PassStopper
from backends.llamacpp.rpc import Peers
from backends.llamacpp.running_state import bytes_of
from backends.llamacpp.tree_sequences import TreeContext
from backends.streaming.streamed_weights import StreamedWeights

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false

BLOCK = 64
"""Tokens of a pass from which on attention takes another kernel on the processor, which keeps its
sums in more bits: it moved the logits of SmolLM2-135M by up to 1.45."""

MAX_LOGITS = BLOCK - 1
"""Most rows of logits of one forward pass, so that no draft is verified by that kernel; the engine
keeps a buffer of this size."""

_NO_SLOT = 1
ABORTED = 2
_INVALID, _NO_MEMORY, _FAILED = -1, -2, -3
UNCHANGED = (_NO_SLOT, _INVALID)
"""Statuses of a pass that did not begin."""


_logits_of = gpu_loss.guarded(
    ctypes.cast(
        cast("Any", api.llama_get_logits), ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    )
)
"""Their address as a number: a pointer of ctypes takes a token 5 µs more."""


class Batch:
    """Memory for passes of up to most tokens, each of one sequence; written once per pass.

    sections: numbers of a position.
    """

    def __init__(self, most: int, sections: int = 1) -> None:
        self._tokens = np.zeros(most, np.int32)
        self._positions = np.zeros(most * sections, np.int32)
        self._counts = np.ones(most, np.int32)
        self._numbers = np.zeros(most, np.int32)
        self._places = self._numbers.ctypes.data + 4 * np.arange(most, dtype=np.uintp)
        self._outputs = np.zeros(most, np.int8)
        integers = ctypes.POINTER(ctypes.c_int32)
        # The engine frees only what llama_batch_init has made.
        self.batch: Any = api.llama_batch(
            token=self._tokens.ctypes.data_as(integers),
            pos=self._positions.ctypes.data_as(integers),
            n_seq_id=self._counts.ctypes.data_as(integers),
            seq_id=self._places.ctypes.data_as(ctypes.POINTER(integers)),
            logits=self._outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )

    def fill(
        self, at: int, tokens: Sequence[int], n_logits: int, position: int, number: int
    ) -> int:
        """Write tokens of a sequence, the last n_logits of which leave logits, from place at on.

        Returns the place after them.
        """
        end = at + len(tokens)
        if end == at + 1:  # nearly every step: a slice takes ten times as long as an item
            self._tokens[at], self._positions[at] = tokens[0], position
            self._numbers[at], self._outputs[at] = number, n_logits
        else:
            self._tokens[at:end] = tokens
            self._positions[at:end] = np.arange(position, position + end - at)
            self._numbers[at:end] = number
            self._outputs[at:end] = 0
            self._outputs[end - n_logits : end] = 1
        return end


class Cells:
    """The cells of an engine's context, the sequences that share them, and passes over these."""

    def __init__(
        self,
        pointer: api.llama_context_p,
        memory: api.llama_memory_t,
        *,
        n_ctx: int,
        n_cells: int,
        n_chunk: int,
        n_vocab: int,
        kv_bytes_per_token: int,
        weights: StreamedWeights | None,
        choices: ChosenExperts | None,
        is_on_processor: bool,
        peers: Peers | None = None,
    ) -> None:
        """Take over an open context.

        n_ctx: the most that one sequence holds. is_on_processor: whether all passes run there,
        where the engine lets them be stopped.
        """
        self._pointer: api.llama_context_p | None = pointer
        self.memory = memory
        self.n_ctx, self.n_cells = n_ctx, n_cells
        self.n_chunk = n_chunk
        self.kv_bytes_per_token = kv_bytes_per_token
        self.is_on_processor = is_on_processor
        self.stops_passes = weights is not None or is_on_processor
        self._n_vocab = n_vocab
        self._batch = Batch(n_chunk)
        self._views: dict[int, Logits] = {}
        """Views of the engine's logits, by number of rows."""
        self._viewed = 0
        """Address of the viewed logits."""
        self._weights = weights
        self._choices = choices
        self._peers = peers
        self._stopper: PassStopper | None = None
        self.leaves_final = self.left_final = False
        """Whether passes whose tokens all leave logits leave final states too; the last one did."""
        self.sequences: list[LlamaSequence] = []
        """The first is the context itself."""
        if weights is not None:
            self._callback = _follow_passes(pointer, weights)
        elif is_on_processor:
            self._stopper = PassStopper(pointer)

    @property
    def pointer(self) -> api.llama_context_p:
        assert self._pointer is not None, "the context is closed"
        return self._pointer

    @property
    def free(self) -> int:
        """Cells that no sequence holds; those that several hold count once."""
        return self.n_cells - sum(each.held - each.shared for each in self.sequences)

    def shortage(self, count: int) -> ModelError | None:
        """Error for so many tokens that find no free cells; None if they do."""
        if count <= (free := self.free):
            return None
        why = f"of {self.n_cells:,} cells, {free:,} are free of {len(self.sequences)} sequences"
        return ModelError(f"{count} tokens do not fit", why)

    def number_branches(self) -> None:
        """Leave trees of the context the numbers below those of other sequences."""
        main, *others = self.sequences
        main.max_branches = min((one.number for one in others), default=main.max_logits)

    def cut(self, source: "LlamaSequence", length: int) -> None:
        """Count cells that source gives up with another sequence that has them from it."""
        heirs = [one for one in self.sequences if one.source is source and one.shared > length]
        shared, source.shared = source.shared, min(source.shared, length)
        if heirs:
            first = max(heirs, key=lambda one: one.shared)
            for heir in heirs:
                heir.source = first
            is_above = shared > length
            first.source = source.source if is_above else source
            first.shared = min(first.shared, shared) if is_above else length

    def run(
        self, passes: Sequence[tuple["LlamaSequence", Sequence[int], int]]
    ) -> SpecchatError | None:
        """Append tokens to sequences; why that failed, None if it did not. All are unchanged then.

        passes: the sequence, its tokens, and how many of the last of them leave logits. A pass over
        several tokens of a prompt may be stopped, unless that would lose a running state.
        """
        end = n_logits = 0
        for sequence, tokens, count in passes:
            assert sequence in self.sequences, "the context is closed"
            end = self._batch.fill(end, tokens, count, sequence.position, sequence.number)
            n_logits += count
        if len(self.sequences) > 1 and (error := self.shortage(end)):
            return error
        batch = self._batch.batch
        batch.n_tokens = end
        is_watched = end >= STOPPABLE and n_logits <= 1
        is_watched = is_watched and all(sequence.can_be_stopped for sequence, *_ in passes)
        status, error = self.decode(
            lambda: api.llama_decode(self.pointer, batch),
            is_watched=is_watched,
            is_whole=n_logits == end,
        )
        for sequence, tokens, _ in passes:
            if error is None:
                sequence.passed(tokens)
            else:
                sequence.undo(len(sequence.tokens), status)
        return error

    def decode(
        self, run: Callable[[], int], *, is_watched: bool = False, is_whole: bool = False
    ) -> tuple[int, SpecchatError | None]:
        """Run what returns the engine's status: that, and why it failed, None if it did not.

        A pass that was interrupted inside was stopped. is_watched: whether it may be, on the
        processor. is_whole: whether all tokens leave logits, as all do whose final states are kept.
        """
        if self._weights is not None:
            self._weights.begin_pass()
        if is_final := self.leaves_final and is_whole:
            api.llama_set_embeddings(self.pointer, True)
        if self._stopper and is_watched:
            with self._stopper.watching():
                status = run()
        else:
            status = run()
        if is_final:
            api.llama_set_embeddings(self.pointer, False)
        self.left_final = is_final
        if self._choices is not None and self._choices.was_interrupted:
            self._choices.was_interrupted, status = False, ABORTED
        fault = None
        if self._weights is not None:
            fault = self._weights.end_pass(is_whole=status == 0)
        fault = fault or self.loss()
        if status == _FAILED and not self.is_on_processor and (why := library.driver_error()):
            fault = gpu_loss.lose(why)  # as Metal tells it
        return status, fault or (_failure(status) if status else None)

    def loss(self) -> SpecchatError | None:
        """That of another machine, which makes all that was computed till now worthless."""
        if self._peers is None:
            return None
        api.llama_synchronize(self.pointer)
        return self._peers.error

    def rows(self, count: int) -> Logits:
        if count == 0:
            return np.empty((0, self._n_vocab), dtype=np.float32)
        address = _logits_of(self.pointer)
        if address != self._viewed:  # the engine has moved them
            self._viewed, self._views = address, {}
        view = self._views.get(count)
        if view is None:  # creating one takes 0.08 ms with the processor's caches cold after a pass
            rows = ctypes.cast(address, ctypes.POINTER(ctypes.c_float))
            view = np.ctypeslib.as_array(rows, shape=(count, self._n_vocab))
            self._views[count] = view
        return view

    def close(self) -> None:
        """Close all sequences but the first, and free the engine's context."""
        for each in self.sequences[1:]:
            each.close()
        api.llama_free(self.pointer)
        self._pointer = None
        self.sequences.clear()


class LlamaSequence(TreeContext):
    """One of the sequences of an engine's context."""

    device_sampling = None
    can_be_stopped = True
    """Whether a pass that does not end leaves it as it was."""

    def __init__(self, cells: Cells, number: int) -> None:
        self.cells = cells
        self.number = number
        self.n_ctx, self.n_chunk = cells.n_ctx, cells.n_chunk
        self.max_logits = min(MAX_LOGITS, self.n_chunk)
        self.kv_bytes_per_token, self.stops_passes = cells.kv_bytes_per_token, cells.stops_passes
        self.tokens: list[int] = []
        self.source: LlamaSequence | None = None
        self.shared = 0
        """Tokens at the beginning whose cells are counted with source, which holds them too."""
        cells.sequences.append(self)

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def held(self) -> int:
        """Cells that it holds, those of an uncommitted tree too."""
        return len(self.tokens)

    @property
    def position(self) -> int:
        """The engine's position after its tokens."""
        return self._position(len(self.tokens))

    @property
    def can_roll_back(self) -> bool:
        return True

    @property
    def max_rollback(self) -> int:
        return self.n_ctx

    def rollback_to(self, length: int) -> int:
        return min(length, len(self.tokens))

    @property
    def can_verify_tree(self) -> bool:
        return not self.tree_refusal

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        self._drop_tree()
        count = len(tokens)
        assert 0 < count <= self.n_chunk, "prefill goes in pieces of n_chunk"
        assert 0 <= n_logits <= min(count, self.max_logits)
        check_room(self, count)
        if error := self._append(tokens, n_logits):
            raise error
        return self.cells.rows(n_logits)

    def _append(self, tokens: Sequence[int], n_logits: int) -> SpecchatError | None:
        """Append tokens; why that failed, None if it did not."""
        return self.cells.run([(self, tokens, n_logits)])

    def passed(self, tokens: Sequence[int]) -> None:
        """Note that a pass appended tokens."""
        self.tokens.extend(tokens)

    def undo(self, length: int, status: int) -> None:
        """Remove what a pass after length tokens left behind that failed with this status.

        The engine seems to undo a short one.
        """
        del status
        self._remove(length)

    def _remove(self, length: int) -> bool:
        """Let the engine forget what follows so many tokens; False if it does not."""
        position = self._position(length)
        return api.llama_memory_seq_rm(self.cells.memory, self.number, position, -1)

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

    def _go_back(self, length: int) -> int:
        """Let the engine go back; the number of tokens that it holds then."""
        return length if self._remove(length) else len(self.tokens)

    def _forget_after(self, length: int) -> None:
        """Note that the engine holds no more than so many tokens."""
        self.cells.cut(self, length)
        del self.tokens[length:]

    def checkpoint(self, *, is_brief: bool = False) -> None:
        """Any length is reachable."""

    def save(self) -> CacheState:
        self._drop_tree()
        pointer, number = self.cells.pointer, ctypes.c_int32(self.number)
        size = api.llama_state_seq_get_size(pointer, number)
        if size > available_memory() // 2:
            raise OutOfMemoryError(
                "the cache cannot be saved",
                f"a copy of {size / 1e6:,.0f} MB needs more free memory",
            )
        state = np.empty(size, dtype=np.uint8)
        if api.llama_state_seq_get_data(pointer, bytes_of(state), size, number) != size:
            raise ModelError("the cache cannot be saved", "llama.cpp returned only a part of it")
        if loss := self.cells.loss():
            raise loss
        return state

    def restore(self, tokens: Sequence[int], state: CacheState) -> None:
        self.truncate(0)
        pointer, number, read = self.cells.pointer, ctypes.c_int32(self.number), 0
        if 0 < len(tokens) <= self.cells.free:
            read = api.llama_state_seq_set_data(pointer, bytes_of(state), state.size, number)
        last = api.llama_memory_seq_pos_max(self.cells.memory, self.number)
        if read != state.size or last != self._position(len(tokens)) - 1:
            api.llama_memory_seq_rm(self.cells.memory, self.number, -1, -1)
            why = "it is of another model or damaged"
            if len(tokens) > (free := self.cells.free):
                why = f"it is of {len(tokens):,} tokens, and {free:,} cells are free"
            raise ModelError("the saved cache cannot be used", why)
        self.tokens.extend(tokens)

    def close(self) -> None:
        """Give its cells and its number back."""
        if self in self.cells.sequences:
            self.truncate(0)
            self.cells.sequences.remove(self)
            self.cells.number_branches()


class LlamaFork(LlamaSequence):
    """A sequence that began as a copy of another one's beginning, and ends before the context."""

    max_branches = 1
    tree_refusal = "is one of several sequences"
    draft_refusal = ""
    state_bytes = saved_state_bytes = exact_batch = 0

    def __init__(self, number: int, source: LlamaSequence, tokens: list[int]) -> None:
        """Take over a number that is free, for a sequence that begins with tokens of source."""
        super().__init__(source.cells, number)
        self.tokens, self.source, self.shared = tokens, source, len(tokens)
        api.llama_memory_seq_cp(self.cells.memory, source.number, number, 0, len(tokens))
        self.cells.number_branches()


def _follow_passes(pointer: api.llama_context_p, weights: StreamedWeights) -> object:
    """Let weights follow every pass, and passes be stopped; what is returned must be kept."""

    @api.ggml_abort_callback
    def is_stopped(_data: object) -> bool:  # asked after each operation, in the pass's own thread
        return weights.advance() or pass_is_stopped()

    api.llama_set_abort_callback(pointer, is_stopped, ctypes.c_void_p(0))
    return is_stopped


def _failure(status: int) -> SpecchatError:
    if status == ABORTED:
        return PassStoppedError()
    what, why = "the model could not process these tokens", f"llama.cpp code {status}"
    if status == _NO_MEMORY:
        return OutOfMemoryError(what, library.last_reason() or why, "Use a smaller --ctx.")
    return ModelError(what, "no free place in its cache" if status == _NO_SLOT else why)
