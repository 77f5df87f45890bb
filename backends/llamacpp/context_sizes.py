"""What a context of a model takes of memory, and how many copies of a running state it has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from backends.base import CacheType, ContextTooLargeError
from backends.files.attention import attention_of
from backends.files.gguf_header import GgufHeader, Tensor
from backends.files.gguf_state import state_bytes
from backends.files.rollback_depth import usual_depth

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class ContextSizes:
    """Sizes of a model's contexts, in bytes but for these.

    state_bytes: of one copy of its running state, 0 without one. usual_depth: copies beside the
    present one, where memory is not short. activations: numbers of a token that a pass holds at
    once, at most.
    """

    kv_bytes_per_token: int
    state_bytes: int
    usual_depth: int
    activations: int
    n_vocab: int

    @classmethod
    def of(
        cls,
        header: GgufHeader,
        tensors: Sequence[Tensor],
        cache_type: CacheType,
        n_vocab: int,
    ) -> Self:
        """Sizes of a loaded model; tensors: of all its parts."""
        width, wide = header.integer("embedding_length"), header.integer("feed_forward_length")
        return cls(
            round(attention_of(header).numbers_per_token * cache_type.number_bytes),
            state_bytes(header),
            usual_depth(header, sum(tensor.stored_bytes for tensor in tensors)),
            4 * width + 3 * wide,
            n_vocab,
        )

    def spare(self, n_ctx: int, n_chunk: int, n_logits: int, free: int) -> int:
        """Bytes left of the free ones beside a context, for copies of a running state.

        A context takes its cache, logits and the activations of a pass. Logits are computed in one
        buffer and kept in another. At 512 tokens, llama.cpp took 25 MiB beside the cache of the
        bundled model with passes of 256 tokens (31 counted here), and 42 of a 1.1B body with 512
        (59 counted).

        n_chunk, n_logits: most tokens and rows of logits of a pass.

        Raises:
            ContextTooLargeError: the context does not fit.
        """
        numbers = 2 * n_logits * self.n_vocab + n_chunk * self.activations
        beside = _FLOAT_BYTES * numbers + self.state_bytes
        needed = n_ctx * self.kv_bytes_per_token + beside
        if needed > free:
            fitting = (free - beside) // max(self.kv_bytes_per_token, 1)
            raise ContextTooLargeError(n_ctx, needed, free, fitting)
        return free - needed
