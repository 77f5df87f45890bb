"""Base of contexts of heads, which draft beside the context of their model."""

# ctypes has only a private name for the type of a pointer
# pyright: reportPrivateUsage=false

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from llama_cpp import llama_cpp as api

from backends.base import Logits
from backends.base.head_limits import HeadLimits
from backends.llamacpp.heads.head_opening import OpenedHead
from backends.llamacpp.heads.row_batch import decode

if TYPE_CHECKING:
    import ctypes


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
