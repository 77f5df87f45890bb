"""The engine's context of a head, opened beside that of its model."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import CacheType, Logits, OutOfMemoryError
from backends.files.attention import head_attention
from backends.files.gguf_header import GgufHeader
from backends.heads.head_limits import HeadLimits
from backends.heads.hidden_states import HiddenStates
from backends.llamacpp import library
from backends.llamacpp.context import LlamaContext
from backends.llamacpp.heads.rows import decode
from backends.llamacpp.model_facts import GGML_TYPES

if TYPE_CHECKING:
    import ctypes

HEAD_CHUNK = 64
"""Most tokens of a head's pass: of EAGLE-3's, each reserves a row of logits."""

_HALF = 2


@dataclass(frozen=True, slots=True)
class HeadSource:
    """What a context of a head is opened from.

    pointer: of the model with the head's weights. header: of its file. layers: with a cache.
    cache_type: of the model's KV cache.
    """

    pointer: api.llama_model_p
    header: GgufHeader
    layers: int
    n_vocab: int
    threads: int
    cache_type: CacheType | None = None

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of the keys and values of a token."""
        return _HALF * head_attention(self.header, self.layers).numbers_per_token


@dataclass(frozen=True, slots=True)
class OpenedHead:
    """The engine's context of a head, and what its model's passes leave for it.

    resources: frees both. n_chunk: most tokens of a pass.
    """

    pointer: api.llama_context_p
    states: HiddenStates
    resources: ExitStack
    n_vocab: int
    n_ctx: int
    n_chunk: int
    kv_bytes_per_token: int = 0


def open_context(
    source: HeadSource,
    target: LlamaContext,
    resources: ExitStack,
    *,
    predicts: bool = False,
    reads_target: bool = False,
    most_branches: int = 1,
) -> api.llama_context_p:
    """Open the engine's context.

    resources: to free it. predicts: of next-token layers. reads_target: the model's own cache,
    token by token. most_branches: of trees that it runs.

    Raises:
        OutOfMemoryError: it does not fit in free memory.
    """
    assert target.pointer is not None, "the context is closed"
    parameters = api.llama_context_default_params()
    parameters.n_ctx = target.n_ctx
    parameters.n_batch = parameters.n_ubatch = chunk(target)
    parameters.n_outputs_max = chunk(target)
    parameters.n_seq_max = most_branches
    parameters.n_threads = parameters.n_threads_batch = source.threads
    parameters.kv_unified = parameters.swa_full = parameters.no_perf = True
    parameters.ctx_other = target.pointer
    if reads_target:  # the layout of the cache that is read
        parameters.n_batch = parameters.n_ubatch = parameters.n_outputs_max = 1
        parameters.type_k = parameters.type_v = GGML_TYPES[source.cache_type or CacheType.F16]
    if predicts:
        parameters.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP
    library.forget_log()
    pointer = api.llama_init_from_model(source.pointer, parameters)
    if pointer is None:
        raise OutOfMemoryError("cannot open a context for the head", library.last_reason())
    resources.callback(api.llama_free, pointer)
    return pointer


def chunk(target: LlamaContext) -> int:
    """Most tokens of a pass of a head beside this context."""
    return min(HEAD_CHUNK, target.n_ctx)


def branches(target: LlamaContext) -> int:
    """Most branches of a tree of a head beside this context; 1 where no tree is verified."""
    return chunk(target) if target.can_verify_tree else 1


def opened(
    source: HeadSource,
    target: LlamaContext,
    pointer: api.llama_context_p,
    states: HiddenStates,
    resources: ExitStack,
) -> OpenedHead:
    """What was opened for a head with a cache of its own."""
    return OpenedHead(
        pointer,
        states,
        resources,
        n_vocab=source.n_vocab,
        n_ctx=target.n_ctx,
        n_chunk=chunk(target),
        kv_bytes_per_token=source.kv_bytes_per_token,
    )


# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false


class HeadContext(HeadLimits):
    """An engine's context of a head, and the tokens that it has read."""

    def __init__(self, opened: OpenedHead) -> None:
        """Take over what was opened; to be called last, as its opener frees it until then."""
        self.pointer: api.llama_context_p | None = opened.pointer
        self._memory = cast("api.llama_memory_t", api.llama_get_memory(opened.pointer))
        self._states = opened.states
        self._n_vocab = opened.n_vocab
        self.n_ctx = self.depth = opened.n_ctx
        self.n_chunk = self.max_logits = opened.n_chunk
        self.kv_bytes_per_token = opened.kv_bytes_per_token
        self.tokens = []
        self._resources = opened.resources.pop_all()

    def _run(self, batch: Any) -> None:
        """Run a pass of the engine."""
        assert self.pointer is not None, "the context is closed"
        decode(self.pointer, batch)

    def _logits(self, count: int) -> Logits:
        """Rows of the last pass, which the next one overwrites."""
        assert self.pointer is not None, "the context is closed"
        found = cast("ctypes._Pointer[ctypes.c_float]", api.llama_get_logits(self.pointer))  # noqa: SLF001
        return np.ctypeslib.as_array(found, shape=(count, self._n_vocab))

    def on_close(self, told: Callable[[], None]) -> None:
        """Call this when the context is closed."""
        self._resources.callback(told)

    def close(self) -> None:
        if self.pointer is None:
            return
        self.pointer = None
        self._resources.close()
