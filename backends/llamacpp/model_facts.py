"""What is told of a model that llama.cpp has loaded, and what its contexts take of memory."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from llama_cpp import llama_cpp as api

from backends.base import CacheType, ContextTooLargeError, ModelInfo, Rollback
from backends.files.attention import attention_of, refusal, rollback_of, state_bytes, usual_depth
from backends.files.gguf_header import GgufHeader, Tensor, read_per_token
from backends.llamacpp import library
from backends.streaming.streamed_weights import StreamedWeights

GGML_TYPES = {
    CacheType.F16: api.GGML_TYPE_F16,
    CacheType.Q8_0: api.GGML_TYPE_Q8_0,
    CacheType.Q4_0: api.GGML_TYPE_Q4_0,
}


def is_against_cache_type(reason: str) -> bool:
    """Whether the engine's reason for not opening a context is the type of its cache.

    It names the block size that does not divide the heads, or flash attention that a model lacks
    (llama_init_from_model).
    """
    return "cache type" in reason or "V cache" in reason


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


def describe(
    pointer: api.llama_model_p,
    path: Path,
    header: GgufHeader,
    tensors: Sequence[Tensor],
    *,
    n_vocab: int,
    threads: int,
    device: str,
    gpu_layers: int | None,
    variant: str,
    weights: StreamedWeights | None,
    cache_type: CacheType,
) -> ModelInfo:
    """Facts of a loaded model. gpu_layers: on GPUs, None without one. tensors: of all its parts."""
    share = header.expert_share
    kind = rollback(pointer, header.architecture)
    n_layers = api.llama_model_n_layer(pointer)
    all_layers = header.integer("block_count")  # with those that predict ahead
    is_partial = gpu_layers is not None and gpu_layers <= all_layers
    return ModelInfo(
        path=path,
        name=path.stem,
        architecture=header.architecture,
        quantization=_quantization(pointer),
        parameters=api.llama_model_n_params(pointer),
        weight_bytes=api.llama_model_size(pointer),
        bytes_read_per_token=read_per_token(header, tensors),
        n_vocab=n_vocab,
        n_layers=n_layers,
        context_limit=api.llama_model_n_ctx_train(pointer),
        active_experts=header.integer("expert_used_count"),
        expert_share=share if share < 1.0 else 0.0,
        rollback=kind,
        rollback_refusal="" if kind is Rollback.ANY else refusal(header.architecture),
        backend="llamacpp",
        engine=library.build(),
        device=device,
        threads=threads,
        variant=variant,
        gpu_layers=gpu_layers if is_partial else None,
        cache_type=cache_type,
        **(held(weights, share) if weights else {}),
    )


def held(weights: StreamedWeights, expert_share: float | None) -> dict[str, Any]:
    """What ModelInfo tells of streamed weights."""
    return {
        "locked_bytes": weights.locked_bytes,
        "streamed_bytes_per_token": weights.read_bytes_per_token(expert_share or 1.0),
        "lock_refusal": weights.refusal,
    }


def rollback(pointer: api.llama_model_p, architecture: str) -> Rollback:
    """How far contexts of a model can forget their last tokens."""
    has_state = api.llama_model_is_recurrent(pointer) or api.llama_model_is_hybrid(pointer)
    return rollback_of(architecture, has_state=has_state)


def _quantization(pointer: api.llama_model_p) -> str:
    """Quantization, such as Q4_1, from a description such as 'llama 135M Q4_1'."""
    buffer = bytes(256)
    size = api.llama_model_desc(pointer, buffer, len(buffer))
    words = buffer[: max(size, 0)].decode(errors="replace")
    match = re.search(r"\b(?:I?Q\d\w*|B?F16|F32|MXFP4\w*|TQ\d\w*|NVFP4)\b", words)
    return match.group() if match else words
