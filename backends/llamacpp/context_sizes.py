"""What a context of a model takes of memory, and how many copies of a running state it has."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from llama_cpp import llama_cpp as api

from backends.base import CacheType, ContextTooLargeError
from backends.files.gguf_header import GgufHeader, Tensor
from backends.files.gguf_state import keeps_cache, state_bytes
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
        pointer: api.llama_model_p,
        header: GgufHeader,
        tensors: Sequence[Tensor],
        cache_type: CacheType,
        n_vocab: int,
    ) -> Self:
        """Sizes of a loaded model; tensors: of all its parts."""
        width, wide = header.integer("embedding_length"), header.integer("feed_forward_length")
        return cls(
            _kv_bytes_per_token(pointer, header, cache_type),
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


def _kv_bytes_per_token(
    pointer: api.llama_model_p, header: GgufHeader, cache_type: CacheType
) -> int:
    n_heads = max(api.llama_model_n_head(pointer), 1)
    default_size = api.llama_model_n_embd(pointer) // n_heads
    key_size = header.integer("attention.key_length", default_size)
    value_size = header.integer("attention.value_length", default_size)
    if state_bytes(header):
        numbers = _cached_heads(header, n_heads) * (key_size + value_size)
        return round(numbers * cache_type.number_bytes)
    count = api.llama_model_n_layer(pointer) - max(header.integer("attention.shared_kv_layers"), 0)
    windowed = sum(map(bool, header.integers("attention.sliding_window_pattern")[:count]))
    in_window = header.integer("attention.key_length_swa", key_size)
    in_window += header.integer("attention.value_length_swa", value_size)
    sizes = (count - windowed) * (key_size + value_size) + windowed * in_window
    return round(api.llama_model_n_head_kv(pointer) * sizes * cache_type.number_bytes)


def _cached_heads(header: GgufHeader, n_heads: int) -> int:
    """Heads with keys and values in all layers of a model that has other layers too."""
    has_cache = keeps_cache(header)
    usual = header.integer("attention.head_count_kv", n_heads)
    heads = header.integers("attention.head_count_kv") or [usual] * len(has_cache)
    return sum(count for count, has in zip(heads, has_cache, strict=False) if has)
