"""Loading a GGUF file with llama.cpp."""

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from llama_cpp import llama_cpp as api

from backends.base import CacheType
from backends.files.gguf_header import parts, read_header
from backends.hardware.host import physical_cores
from backends.llamacpp import library
from backends.llamacpp.head_checks.prediction_check import predicts
from backends.llamacpp.llama_model import LlamaModel
from backends.llamacpp.loading.lazy_mapping import mapping_only
from backends.llamacpp.loading.load_checks import checked_header, load_error
from backends.streaming.streamed_weights import StreamedWeights

if TYPE_CHECKING:
    import ctypes

_ACTIVE_EXPERTS = "expert_used_count"
_ALL_LAYERS = 999
_MAPPED = 1
"""LLAMA_LOAD_MODE_MMAP."""


def load(
    path: Path,
    *,
    threads: int | None = None,
    gpu_layers: int | None = None,
    experts: int | None = None,
    lock_bytes: int | None = None,
    cache_type: CacheType | None = None,
    beside: LlamaModel | None = None,
) -> LlamaModel:
    """Load a GGUF file; weights are memory-mapped, and copied to the GPU if the build uses one.

    experts: experts used per token, None for the file's own number.
    lock_bytes: weights to lock in memory while the others stream from disk, None for a model that
    fits. What GPUs get is copied there once; gpu_layers of None are then none. beside: a streaming
    model of the same file, whose held weights this one uses too. cache_type: of the KV cache, half
    floats if None.

    Raises:
        ModelError: the file is missing, damaged or of an unknown architecture.
        PassStoppedError: loading was stopped while weights were being locked.
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
    # Also where nothing drafts: a drafter can be asked for at any step, and the model would have to
    # be loaded anew. Layers that are mapped and not read take no memory; copies are in the bill.
    whole = replace(header, tensors=tuple(tensors), metadata={**header.metadata, "split.count": 1})
    parameters.load_mtp = lock_bytes is None and beside is None and predicts(whole)
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
    with mapping_only() if weights is not None else nullcontext():
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
        cache_type=cache_type or CacheType.F16,
        is_beside=beside is not None,
        has_own_head=parameters.load_mtp,
    )


def _overrides(key: str, value: int) -> "ctypes.Array[api.llama_model_kv_override]":
    """Override of an integer in the file's metadata, terminated by an entry without a key."""
    overrides = (api.llama_model_kv_override * 2)()
    overrides[0].tag = api.LLAMA_KV_OVERRIDE_TYPE_INT
    overrides[0].key = key.encode()
    overrides[0].value.val_i64 = value
    return overrides
