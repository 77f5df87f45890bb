"""Models loaded by llama.cpp."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_cpp import llama_cpp as api

from backends.base import (
    Context,
    ContextTooLargeError,
    ModelError,
    ModelInfo,
    OutOfMemoryError,
    Rollback,
)
from backends.files.gguf_header import GgufHeader, Tensor, parts, read_header, read_per_token
from backends.hardware.host import available_memory, physical_cores
from backends.llamacpp import library
from backends.llamacpp.chosen_experts import ChosenExperts
from backends.llamacpp.llama_context import MAX_LOGITS, LlamaContext
from backends.llamacpp.llama_tokenizer import LlamaTokenizer
from backends.llamacpp.load_checks import checked_header, load_error
from backends.streaming.streamed_chunk import STREAMED_CHUNK
from backends.streaming.streamed_weights import StreamedWeights

if TYPE_CHECKING:
    import ctypes

_ACTIVE_EXPERTS = "expert_used_count"
_ALL_LAYERS = 999
_FLOAT_BYTES, _HALF_FLOAT_BYTES = 4, 2
_MAPPED = 1
"""LLAMA_LOAD_MODE_MMAP."""
_SMALL_MODEL_BYTES = 1 << 30


def load(
    path: Path,
    *,
    threads: int | None = None,
    gpu_layers: int | None = None,
    experts: int | None = None,
    lock_bytes: int | None = None,
    beside: "LlamaModel | None" = None,
) -> "LlamaModel":
    """Load a GGUF file; weights are memory-mapped, and copied to the GPU if the build uses one.

    experts: experts used per token, None for the file's own number.
    lock_bytes: weights to lock in memory while the others stream from disk, None for a model that
    fits. What GPUs get is copied there once; gpu_layers of None are then none. beside: a streaming
    model of the same file, whose held weights this one uses too.

    Raises:
        ModelError: the file is missing, damaged or of an unknown architecture.
        UsageError: GPU layers, and this build supports no GPU.
    """
    first, *others = parts(path)
    header = checked_header(first)
    if experts is not None:
        header = header.with_integer(_ACTIVE_EXPERTS, experts)
    tensors = [tensor for part in (header, *map(read_header, others)) for tensor in part.tensors]
    library.start()
    library.forget_log()
    parameters = api.llama_model_default_params()
    parameters.use_extra_bufts = library.repacking_is_exact()
    library.check_gpu_layers(gpu_layers)
    weights = None
    if lock_bytes is not None or beside is not None:
        # Rearranged weights would be a copy of them in memory. Of a mapped file, the processor's
        # layers stay mapped also beside a GPU (create_tensor in src/llama-model-loader.cpp).
        parameters.load_mode, parameters.use_extra_bufts = _MAPPED, False
        gpu_layers = gpu_layers or 0
        shared = beside.streamed_weights if beside else None
        weights = shared or StreamedWeights(first, lock_bytes or 0, gpu_layers)
    offloaded = library.can_offload() and gpu_layers != 0
    parameters.n_gpu_layers = _ALL_LAYERS if offloaded and gpu_layers is None else gpu_layers or 0
    if experts is not None:
        parameters.kv_overrides = _overrides(f"{header.architecture}.{_ACTIVE_EXPERTS}", experts)
    pointer = api.llama_model_load_from_file(os.fsencode(path), parameters)
    if pointer is None:
        if weights is not None and beside is None:
            weights.close()
        raise load_error(path, header)
    if weights is not None:
        weights.follow()
    return LlamaModel(
        pointer,
        path,
        header,
        tensors,
        threads=threads or physical_cores(),
        offloaded=offloaded,
        gpu_layers=gpu_layers,
        variant="" if experts is None else f"experts{experts}",
        weights=weights,
        is_beside=beside is not None,
    )


def _overrides(key: str, value: int) -> "ctypes.Array[api.llama_model_kv_override]":
    """Override of an integer in the file's metadata, terminated by an entry without a key."""
    overrides = (api.llama_model_kv_override * 2)()
    overrides[0].tag = api.LLAMA_KV_OVERRIDE_TYPE_INT
    overrides[0].key = key.encode()
    overrides[0].value.val_i64 = value
    return overrides


class LlamaModel:
    """Loaded weights and their open contexts."""

    def __init__(
        self,
        pointer: api.llama_model_p,
        path: Path,
        header: GgufHeader,
        tensors: Sequence[Tensor],
        *,
        threads: int,
        offloaded: bool,
        gpu_layers: int | None = None,
        variant: str = "",
        weights: StreamedWeights | None = None,
        is_beside: bool = False,
    ) -> None:
        """Take over loaded weights; is_beside: those that are streamed are another model's too."""
        self._pointer: api.llama_model_p | None = pointer
        self._weights = weights
        self._is_beside = is_beside
        self._contexts: set[LlamaContext] = set()
        self._offloaded = offloaded
        template = api.llama_model_chat_template(pointer, None)
        self.tokenizer = LlamaTokenizer(
            pointer, template.decode(errors="replace") if template else None
        )
        self.info = _describe(
            pointer,
            path,
            header,
            tensors,
            n_vocab=self.tokenizer.n_vocab,
            threads=threads,
            device=library.device(gpu_layers),
            gpu_layers=gpu_layers if offloaded else None,
            variant=variant,
            weights=weights,
        )
        self._kv_bytes_per_token = _kv_bytes_per_token(pointer, header)
        width, wide = header.integer("embedding_length"), header.integer("feed_forward_length")
        self._activations = 4 * width + 3 * wide
        """Numbers of a token that a pass holds at once, at most."""

    @property
    def streamed_weights(self) -> StreamedWeights | None:
        """Weights that are read from disk in part; None for a model in memory."""
        return self._weights

    def open(self, n_ctx: int) -> Context:
        assert self._pointer is not None, "the model is closed"
        info = self.info
        info.check_context(n_ctx)
        n_chunk = self._chunk_size(n_ctx)
        if not self._offloaded:
            self._check_memory(n_ctx, n_chunk)
        parameters = api.llama_context_default_params()
        parameters.n_ctx = n_ctx
        parameters.n_batch = parameters.n_ubatch = n_chunk
        parameters.n_outputs_max = min(MAX_LOGITS, n_chunk)
        if info.rollback is Rollback.ANY:  # one sequence per branch of a tree, in one cache
            parameters.n_seq_max = parameters.n_outputs_max
            parameters.kv_unified = True
        parameters.n_threads = parameters.n_threads_batch = info.threads
        parameters.no_perf = True
        choices = self._choices()
        if choices is not None:
            parameters.cb_eval = choices.callback
        library.forget_log()
        pointer = api.llama_init_from_model(self._pointer, parameters)
        if pointer is None:
            raise OutOfMemoryError(
                f"cannot open a context of {n_ctx:,} tokens",
                library.last_reason(),
                "Use a smaller --ctx.",
            )
        memory = api.llama_get_memory(pointer)
        if memory is None:
            api.llama_free(pointer)
            raise ModelError(
                f"{info.name} cannot chat", "it encodes texts and cannot generate them"
            )
        context = LlamaContext(
            pointer,
            memory,
            n_vocab=info.n_vocab,
            n_ctx=n_ctx,
            n_chunk=n_chunk,
            max_logits=parameters.n_outputs_max,
            kv_bytes_per_token=self._kv_bytes_per_token,
            can_roll_back=info.rollback is Rollback.ANY,
            tree_refusal="" if info.rollback is Rollback.ANY else info.rollback_refusal,
            on_close=self._contexts.discard,
            weights=self._weights,
            choices=choices,
        )
        self._contexts.add(context)
        return context

    def _choices(self) -> ChosenExperts | None:
        """Tells streamed weights which experts a pass chooses; None if none are read from disk."""
        weights = self._weights
        if weights is None or not weights.reads_experts:
            return None
        return ChosenExperts.of(self.info.active_experts, weights.choose)

    def hold(self, lock_bytes: int) -> None:
        """Lock up to so many bytes of streamed weights from now on. Not during a pass."""
        weights = self._weights
        assert weights is not None, "the model is in memory"
        weights.hold(lock_bytes)
        self.info = replace(self.info, **_held(weights, self.info.expert_share))

    def _chunk_size(self, n_ctx: int) -> int:
        """Tokens of a prefill pass: few for slow models, so that stopping is quick.

        Streamed weights are read once for each, and its passes stop in between.

        It depends on the model, never on timing, so that a prompt is always split alike.
        """
        if self._weights is not None:
            return min(STREAMED_CHUNK, n_ctx)
        small = self._offloaded or self.info.weight_bytes < _SMALL_MODEL_BYTES
        return min(256 if small else 64, n_ctx)

    def _check_memory(self, n_ctx: int, n_chunk: int) -> None:
        """Refuse a context that does not fit: its cache, logits and the activations of a pass.

        Logits are computed in one buffer and kept in another. At 512 tokens, llama.cpp took 25 MiB
        beside the cache of the bundled model with passes of 256 tokens (31 counted here), and 42 of
        a 1.1B body with 512 (59 counted).
        """
        logits = 2 * min(MAX_LOGITS, n_chunk) * self.info.n_vocab
        beside = _FLOAT_BYTES * (logits + n_chunk * self._activations)
        needed = n_ctx * self._kv_bytes_per_token + beside
        free = available_memory()
        if needed > free:
            fitting = (free - beside) // max(self._kv_bytes_per_token, 1)
            raise ContextTooLargeError(n_ctx, needed, free, fitting)

    def close(self) -> None:
        if self._pointer is None:
            return
        for context in list(self._contexts):
            context.close()
        api.llama_model_free(self._pointer)
        self._pointer = None
        if self._weights is None:
            return
        if self._is_beside:
            self._weights.follow()  # without what this model had mapped
        else:
            self._weights.close()


def _describe(
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
) -> ModelInfo:
    share = header.expert_share
    n_layers = api.llama_model_n_layer(pointer)
    is_partial = gpu_layers is not None and gpu_layers <= n_layers
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
        active_experts=header.integer(_ACTIVE_EXPERTS),
        expert_share=share if share < 1.0 else 0.0,
        rollback=rollback(pointer),
        backend="llamacpp",
        engine=library.build(),
        device=device,
        threads=threads,
        variant=variant,
        gpu_layers=gpu_layers if is_partial else None,
        **(_held(weights, share) if weights else {}),
    )


def _held(weights: StreamedWeights, expert_share: float | None) -> dict[str, Any]:
    """What ModelInfo tells of streamed weights."""
    return {
        "locked_bytes": weights.locked_bytes,
        "streamed_bytes_per_token": weights.read_bytes_per_token(expert_share or 1.0),
        "lock_refusal": weights.refusal,
    }


def rollback(pointer: api.llama_model_p) -> Rollback:
    """Rollback of a model: a recurrent state cannot forget only its last tokens."""
    recurrent = api.llama_model_is_recurrent(pointer) or api.llama_model_is_hybrid(pointer)
    return Rollback.NONE if recurrent else Rollback.ANY


def _quantization(pointer: api.llama_model_p) -> str:
    """Quantization, such as Q4_1, from a description such as 'llama 135M Q4_1'."""
    buffer = bytes(256)
    size = api.llama_model_desc(pointer, buffer, len(buffer))
    words = buffer[: max(size, 0)].decode(errors="replace")
    match = re.search(r"\b(?:I?Q\d\w*|B?F16|F32|MXFP4\w*|TQ\d\w*|NVFP4)\b", words)
    return match.group() if match else words


def _kv_bytes_per_token(pointer: api.llama_model_p, header: GgufHeader) -> int:
    n_heads = max(api.llama_model_n_head(pointer), 1)
    default_size = api.llama_model_n_embd(pointer) // n_heads
    key_size = header.integer("attention.key_length", default_size)
    value_size = header.integer("attention.value_length", default_size)
    per_layer = api.llama_model_n_head_kv(pointer) * (key_size + value_size)
    return per_layer * api.llama_model_n_layer(pointer) * _HALF_FLOAT_BYTES
