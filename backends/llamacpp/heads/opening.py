"""The engine's context of a head, opened beside that of its model, and passes in it."""

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import CacheType, DraftUnavailableError, Logits, ModelError, OutOfMemoryError
from backends.files.attention import head_attention
from backends.files.gguf_drafter import TrainedDrafter
from backends.files.gguf_header import GgufHeader
from backends.hardware import gpu_loss
from backends.heads.head import HeadContext
from backends.heads.hidden_states import FINAL, HiddenStates, Rows
from backends.llamacpp import library
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.library import GGML_TYPES
from backends.llamacpp.sequences import Batch


def keep_hidden(pointer: api.llama_context_p, *, only_outputs: bool) -> None:
    """Make passes leave hidden states: of all tokens, or of those with logits."""
    _extended().llama_set_embeddings_nextn(pointer, True, only_outputs)


def choose_layer(pointer: api.llama_context_p, number: int) -> None:
    """Let passes run a next-token layer, 0 for the first, of an architecture that has several."""
    _extended().llama_set_nextn_layer_offset(pointer, number)


def hidden(pointer: api.llama_context_p, count: int, width: int) -> Rows:
    """Hidden states of the last pass, which the next one overwrites."""
    return _view(_extended().llama_get_embeddings_nextn(pointer), count, width)


def keep_layer_inputs(pointer: api.llama_context_p, layer: int, *, keep: bool = True) -> None:
    """Make passes leave the input of a layer, or no longer. Not during a pass."""
    function = _layer_function("set", None, ctypes.c_bool)
    function(pointer, layer, keep)


def layer_inputs(pointer: api.llama_context_p, layer: int, count: int, width: int) -> Rows:
    """Inputs of a layer in the last pass, which the next one overwrites."""
    function = _layer_function("get", ctypes.POINTER(ctypes.c_float))
    return _view(gpu_loss.guarded(function)(pointer, layer), count, width)


def _view(found: Any, count: int, width: int) -> Rows:
    return np.ctypeslib.as_array(found, (count, width))


@cache
def _extended() -> Any:
    """The engine's functions for heads.

    Raises:
        DraftUnavailableError: this build does not export them.
    """
    try:
        from llama_cpp import llama_cpp_ext
    except (ImportError, AttributeError) as error:
        raise _missing() from error
    gpu_loss.guard(llama_cpp_ext)
    return llama_cpp_ext


_LAYER_FUNCTIONS = {
    "set": (
        "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
        "?llama_set_embeddings_layer_inp@@YAXPEAUllama_context@@I_N@Z",
    ),
    "get": (
        "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
        "?llama_get_embeddings_layer_inp@@YAPEAMPEAUllama_context@@I@Z",
    ),
}
"""Names in C++ as compilers for Linux and macOS write them, and the one for Windows: the bindings
leave these functions out."""


@cache
def _layer_function(verb: str, result: Any, *further: Any) -> Any:
    for name in _LAYER_FUNCTIONS[verb]:
        function = cast("Any", getattr(api._lib, name, None))  # noqa: SLF001
        if function is not None:
            function.argtypes = [api.llama_context_p_ctypes, ctypes.c_uint32, *further]
            function.restype = result
            return function
    raise _missing()


def _missing() -> DraftUnavailableError:
    return DraftUnavailableError(
        "heads cannot draft here", "this build of llama.cpp does not export what they need"
    )


class RowBatch(Batch):
    """Memory for passes of up to most tokens, with a row of this width for each; of sequence 0.

    sections: numbers of a position where rows come without tokens: 4 with M-RoPE, else 1.
    """

    def __init__(self, most: int, width: int, sections: int = 1) -> None:
        super().__init__(most, sections)
        self._sections = sections
        self._rows = np.zeros((most, width), np.float32)
        self._token_address = self._tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        self._row_address = self._rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float))

    def filled(
        self, start: int, tokens: Sequence[int] | None, rows: Rows | None, *, outputs: bool
    ) -> Any:
        """The batch with tokens or rows, or both, at positions from start on.

        outputs: whether all of them leave logits and hidden states, or none does.
        """
        batch = self.batch
        count = len(tokens) if tokens is not None else len(rows) if rows is not None else 0
        batch.n_tokens = count
        batch.token = None if tokens is None else self._token_address
        batch.embd = None if rows is None else self._row_address
        if tokens is not None:
            self._tokens[:count] = tokens
        if rows is not None:
            self._rows[:count] = rows
        positions = np.arange(start, start + count)
        self._positions[:count] = positions
        if tokens is None and self._sections > 1:  # time, height, width; the last is not used
            self._positions[: 3 * count] = np.tile(positions, 3)
            self._positions[3 * count : 4 * count] = 0
        self._outputs[:count] = outputs
        return batch


def decode(pointer: api.llama_context_p, batch: api.llama_batch) -> None:
    """Run a batch. Raises ModelError: the engine failed."""
    check(api.llama_decode(pointer, batch))


def check(status: int) -> None:
    """Refuse what a pass left that ended with another status than success."""
    if status:
        raise ModelError("the head could not draft", f"llama.cpp code {status}")


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


def add_final_states(target: LlamaContext, width: int, resources: ExitStack) -> HiddenStates:
    """Let passes leave what the output layer reads, in any architecture; a few of the last rows.

    That is of passes whose tokens all leave logits, as those do that verify: the engine computes
    logits wherever it keeps these. resources: to leave them no longer.
    """
    pointer, cells = target.pointer, target.cells
    assert pointer is not None, "a context that was closed has no heads"

    def read(count: int) -> Rows:
        found = api.llama_get_embeddings(pointer) if cells.left_final else None
        return _view(found, count, width) if found else np.empty((0, width), np.float32)

    states = HiddenStates(read, width, target.n_chunk, (FINAL,))
    target.add_states(states)
    resources.callback(target.remove_states, states)
    return states


def _leave_no_states(target: LlamaContext, states: HiddenStates) -> None:
    """Leave them no longer, unless another head reads them."""
    if not target.remove_states(states) and target.pointer is not None:
        _extended().llama_set_embeddings_nextn(target.pointer, False, False)


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
