"""The engine's context of a head, opened beside that of its model, and passes in it."""

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import CacheType, Logits, OutOfMemoryError
from backends.files.attention import head_attention
from backends.files.gguf_drafter import TrainedDrafter
from backends.files.gguf_header import GgufHeader
from backends.heads.head import HeadContext
from backends.heads.hidden_states import HiddenStates, Rows
from backends.llamacpp import library
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.heads.rows import (
    decode,
    forget_hidden,
    hidden,
    keep_hidden,
    keep_layer_inputs,
    layer_inputs,
)
from backends.llamacpp.library import GGML_TYPES

if TYPE_CHECKING:
    import ctypes

HEAD_CHUNK = 64
"""Most tokens of a head's pass: of EAGLE-3's, each reserves a row of logits."""

_HALF = 2


@dataclass(frozen=True, slots=True)
class Opening:
    """What a context of a head is opened from, beside a context of its model.

    model: that with the head's weights. header: of its file. cache_type: of the model's KV cache.
    resources: to undo what was done here; who takes over a context takes
    these too.
    """

    model: api.llama_model_p
    header: GgufHeader
    drafter: TrainedDrafter
    n_vocab: int
    threads: int
    cache_type: CacheType | None
    target: LlamaContext
    resources: ExitStack

    @property
    def kv_bytes_per_token(self) -> int:
        return _HALF * head_attention(self.header, self.drafter.layers).numbers_per_token

    @property
    def n_chunk(self) -> int:
        """Most tokens of a pass."""
        return min(HEAD_CHUNK, self.target.n_ctx)

    @property
    def branches(self) -> int:
        """Most branches of a tree; 1 where no tree is verified."""
        return self.n_chunk if self.target.can_verify_tree else 1

    @property
    def _target_pointer(self) -> api.llama_context_p:
        assert self.target.pointer is not None, "the context is closed"
        return self.target.pointer

    def context(
        self, *, predicts: bool = False, reads_target: bool = False, most_branches: int = 1
    ) -> api.llama_context_p:
        """Open the engine's context.

        predicts: of next-token layers. reads_target: the model's own cache, token by token.
        most_branches: of trees that it runs.

        Raises:
            OutOfMemoryError: it does not fit in free memory.
        """
        parameters = api.llama_context_default_params()
        parameters.n_ctx = self.target.n_ctx
        parameters.n_batch = parameters.n_ubatch = parameters.n_outputs_max = self.n_chunk
        parameters.n_seq_max = most_branches
        parameters.n_threads = parameters.n_threads_batch = self.threads
        parameters.kv_unified = parameters.swa_full = parameters.no_perf = True
        parameters.ctx_other = self._target_pointer
        if reads_target:  # the layout of the cache that is read
            parameters.n_batch = parameters.n_ubatch = parameters.n_outputs_max = 1
            parameters.type_k = parameters.type_v = GGML_TYPES[self.cache_type or CacheType.F16]
        if predicts:
            parameters.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP
        library.forget_log()
        pointer = api.llama_init_from_model(self.model, parameters)
        if pointer is None:
            raise OutOfMemoryError("cannot open a context for the head", library.last_reason())
        self.resources.callback(api.llama_free, pointer)
        return pointer

    def final_states(self, most: int | None = None) -> HiddenStates:
        """Let the model's passes leave hidden states of the head's width, from the next one on.

        most: rows kept, at least of a pass; None for all.

        Raises:
            DraftUnavailableError: this build of llama.cpp does not export them.
        """
        pointer, width = self._target_pointer, api.llama_model_n_embd_out(self.model)
        keep_hidden(pointer, only_outputs=False)
        rows = self.target.n_ctx if most is None else most
        states = HiddenStates(lambda count: hidden(pointer, count, width), width, rows)
        self.target.add_states(states)
        self.resources.callback(_leave_no_states, self.target, states)
        return states


def add_layer_states(
    target: LlamaContext, layers: Sequence[int], width: int, resources: ExitStack
) -> HiddenStates:
    """Let passes leave the inputs of layers, each of this width, from the next one on.

    resources: to leave them no longer.

    Raises:
        DraftUnavailableError: this build of llama.cpp does not export them.
    """
    pointer = target.pointer
    assert pointer is not None, "a context that was closed has no heads"

    def read(count: int) -> Rows:
        return np.hstack([layer_inputs(pointer, layer, count, width) for layer in layers])

    for layer in set(layers):
        if layer not in target.read_layers:  # setting one makes the engine plan anew
            keep_layer_inputs(pointer, layer)
        resources.callback(_leave_no_inputs, target, layer)
    states = HiddenStates(read, len(layers) * width, target.n_ctx, layers)
    target.add_states(states)
    resources.callback(target.remove_states, states)
    return states


def _leave_no_states(target: LlamaContext, states: HiddenStates) -> None:
    """Leave them no longer, unless another head reads them."""
    if not target.remove_states(states) and target.pointer is not None:
        forget_hidden(target.pointer)


def _leave_no_inputs(target: LlamaContext, layer: int) -> None:
    """Leave a layer's inputs no longer, unless another head reads them."""
    if target.pointer is not None and layer not in target.read_layers:  # not closed before the head
        keep_layer_inputs(target.pointer, layer, keep=False)


class HeadPasses:
    def __init__(self, pointer: api.llama_context_p, n_vocab: int) -> None:
        self._pointer: api.llama_context_p | None = pointer
        self._memory = cast("api.llama_memory_t", api.llama_get_memory(pointer))
        self._n_vocab = n_vocab

    @property
    def pointer(self) -> api.llama_context_p:
        """The engine's context."""
        assert self._pointer is not None, "the context is closed"
        return self._pointer

    def _run(self, batch: Any) -> None:
        decode(self.pointer, batch)

    def _remove(self, length: int) -> None:
        api.llama_memory_seq_rm(self._memory, 0, length, -1)

    def _logits(self, count: int) -> Logits:
        """Rows of the last pass, which the next one overwrites."""
        found = cast("ctypes._Pointer[ctypes.c_float]", api.llama_get_logits(self.pointer))  # noqa: SLF001
        return np.ctypeslib.as_array(found, shape=(count, self._n_vocab))

    def close(self) -> None:
        """Run nothing more; who opened the context frees it."""
        self._pointer = None


class TokenHead(HeadPasses, HeadContext):
    def __init__(self, at: Opening, pointer: api.llama_context_p, states: HiddenStates) -> None:
        """Take over an open context; to be called last, as its opener frees it until then."""
        super().__init__(pointer, at.n_vocab)
        self._states = states
        self.n_ctx = self.max_rollback = at.target.n_ctx
        self.n_chunk = self.max_logits = at.n_chunk
        self.kv_bytes_per_token = at.kv_bytes_per_token
        self.tokens = []
        self._resources = at.resources.pop_all()

    def close(self) -> None:
        super().close()
        self._resources.close()
