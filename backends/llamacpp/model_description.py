"""What is told of a model that llama.cpp has loaded."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llama_cpp import llama_cpp as api

from backends.base import CacheType, ModelInfo, Rollback
from backends.files.gguf_header import GgufHeader, Tensor, read_per_token
from backends.files.rollback_depth import refusal, rollback_of
from backends.llamacpp import library
from backends.streaming.streamed_weights import StreamedWeights


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
