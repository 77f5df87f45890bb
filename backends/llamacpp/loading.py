"""Loading a GGUF file with llama.cpp, checked before, and llama-cpp-python's own generation."""

import ctypes
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

from llama_cpp import Llama
from llama_cpp import llama_cpp as api
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from backends.base import CacheType, Model, ModelError, SpecchatError, Vocabulary, Warping
from backends.base.baseline_engine import BaselineEngine
from backends.base.errors import OutOfMemoryError
from backends.files.gguf_header import GgufHeader, parts, read_header
from backends.hardware.gpu_loss import NO_DEVICES
from backends.hardware.host import physical_cores
from backends.llamacpp import library
from backends.llamacpp.file_checks import broken_assertion, why_not_alone
from backends.llamacpp.head_checks import predicts
from backends.llamacpp.library import GGML_TYPES
from backends.llamacpp.model import LlamaModel, chat_template, rollback
from backends.llamacpp.rpc import Peers
from backends.llamacpp.tokenizer import LlamaTokenizer
from backends.streaming.streamed_weights import StreamedWeights


def checked_header(path: Path) -> GgufHeader:
    """Read the header of a file that llama.cpp loads without aborting the process.

    Raises:
        ModelError: it is missing or damaged, or violates an assertion of the engine.
    """
    header = read_header(path)
    if reason := broken_assertion(header):
        raise ModelError(f"cannot run {path}", reason, "Choose another conversion of the model.")
    if reason := why_not_alone(header):
        raise ModelError(f"cannot run {path}", reason, "Name the model itself.")
    if not header.can_spell_any_text:
        # llama.cpp aborts at the first letter without a token.
        raise ModelError(
            f"cannot run {path}",
            "its SentencePiece vocabulary lacks byte tokens, so that some texts cannot be encoded",
            "Choose another conversion of the model.",
        )
    return header


def load_error(path: Path, header: GgufHeader) -> ModelError:
    """Error for a file that llama.cpp did not load, with the engine's reason."""
    reason = library.last_reason()
    if "unable to allocate" in reason:
        remedy = "Choose a smaller model or quantization, or free some memory."
        return OutOfMemoryError(f"cannot load {path}", reason, remedy)
    remedy = "Download or copy it again, or choose another model."
    if "unknown model architecture" in reason:
        reason = f"this version of llama.cpp does not know the architecture {header.architecture!r}"
        remedy = "Choose another model, or a newer specchat."
    return ModelError(f"cannot load {path}", reason, remedy)


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
    beside: Model | None = None,
    blank: bool = False,
    projector: Path | SpecchatError | None = None,
    peers: Peers | None = None,
) -> LlamaModel:
    """Load a GGUF file; weights are memory-mapped, and copied to the GPU if the build uses one.

    experts: experts used per token, None for the file's own number.
    lock_bytes: weights to lock in memory while the others stream from disk, None for a model that
    fits. What GPUs get is copied there once; gpu_layers of None are then none. beside: a streaming
    model of the same file, whose held weights this one uses too. cache_type: of the KV cache, half
    floats if None. blank: leave out what would be copied of the weights' matrices, which takes most
    of the time; passes then run as ever and mean nothing. projector: for
    images, loaded for the first; or why there is none. peers: whose devices come before the GPUs
    here; closed by the model.

    Raises:
        ModelError: the file is missing, damaged or of an unknown architecture.
        PassStoppedError: loading was stopped while weights were being locked.
        UsageError: GPU layers, and this build supports no GPU.
        PeerLostError: one of the peers was lost.
    """
    assert beside is None or isinstance(beside, LlamaModel)
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
    if peers is None:
        library.check_gpu_layers(gpu_layers)
    else:
        pointers = *peers.pointers, *library.used_pointers(), None
        devices = (ctypes.c_void_p * len(pointers))(*pointers)
        parameters.devices = cast("Any", ctypes.addressof(devices))
    weights = None
    if lock_bytes is not None or beside is not None:
        # Rearranged weights would be a copy of them in memory. Of a mapped file, the processor's
        # layers stay mapped also beside a GPU (create_tensor in src/llama-model-loader.cpp).
        parameters.load_mode, parameters.use_extra_bufts = _MAPPED, False
        gpu_layers = gpu_layers or 0
        shared = beside.streamed_weights if beside else None
        weights = shared or StreamedWeights(first, lock_bytes or 0, gpu_layers)
    offloaded = (peers is not None or library.can_offload()) and gpu_layers != 0
    parameters.n_gpu_layers = _ALL_LAYERS if offloaded and gpu_layers is None else gpu_layers or 0
    parameters.devices = parameters.devices if offloaded else NO_DEVICES
    if experts is not None:
        parameters.kv_overrides = _overrides(f"{header.architecture}.{_ACTIVE_EXPERTS}", experts)
    with ExitStack() as stack:
        if weights is not None or (blank and offloaded and gpu_layers is None):
            only_map(stack)
        if blank:
            parameters.load_mode = _MAPPED  # else some GPUs are given weights by another way
            leave_out_matrices(stack)
        pointer = api.llama_model_load_from_file(os.fsencode(path), parameters)
    if pointer is None:
        if weights is not None and beside is None:
            weights.close()
        raise (peers.error if peers else None) or load_error(path, header)
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
        projector=projector,
        peers=peers,
    )


def _overrides(key: str, value: int) -> "ctypes.Array[api.llama_model_kv_override]":
    """Override of an integer in the file's metadata, terminated by an entry without a key."""
    overrides = (api.llama_model_kv_override * 2)()
    overrides[0].tag = api.LLAMA_KV_OVERRIDE_TYPE_INT
    overrides[0].key = key.encode()
    overrides[0].value.val_i64 = value
    return overrides


@contextmanager
def vocabulary(path: Path) -> Generator[Vocabulary]:
    """Vocabulary of a file, valid within the block.

    Raises:
        ModelError: the file is missing, damaged or of an unknown architecture.
    """
    header = checked_header(parts(path)[0])
    library.start()
    library.forget_log()
    parameters = api.llama_model_default_params()
    parameters.vocab_only, parameters.devices = True, NO_DEVICES
    pointer = api.llama_model_load_from_file(os.fsencode(path), parameters)
    if pointer is None:
        raise load_error(path, header)
    try:
        kind = rollback(pointer, header.architecture)
        yield Vocabulary(LlamaTokenizer(pointer, chat_template(pointer)), kind)
    finally:
        api.llama_model_free(pointer)


# Changing what llama.cpp has no option for, while it loads: functions in its tables are wrapped.
# Source of the tables: ggml/src/ggml-backend-impl.h.

_API_VERSION = 2
"""GGML_BACKEND_API_VERSION of the tables as they are known here."""

_POINTER = ctypes.sizeof(ctypes.c_void_p)
_FIND_FUNCTION = 4 * _POINTER
"""Offset of get_proc_address in struct ggml_backend_reg."""
_ALLOCATE = _POINTER
"""Offset of alloc_buffer in struct ggml_backend_buffer_type."""
_COPY = 4 * _POINTER
"""Offset of set_tensor in struct ggml_backend_buffer."""

_FindFunction = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Copy = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_size_t] * 2)
_in_place: list[object] = []
"""Functions in tables, which outlive the loading in those of buffers."""


def _registry() -> int:
    """Address of the registry of the processor backend; 0 where it is not as it is known here."""
    try:
        by_name = library.shared_library("ggml").ggml_backend_reg_by_name
    except (OSError, AttributeError):
        return 0
    by_name.argtypes, by_name.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = by_name(b"CPU") or 0
    is_known = address and ctypes.c_int.from_address(address).value == _API_VERSION
    return address if is_known else 0


def _wrap(place: int, kind: Any, wrapper: Callable[..., Any]) -> Callable[[], None]:
    """Wrap the function whose address is at a place; the result takes the wrapper away.

    kind: its type in ctypes. wrapper: called with the function, then what that is called with.
    """
    pointer = ctypes.c_void_p.from_address(place)
    usual = pointer.value
    function = kind(partial(wrapper, kind(usual)))
    _in_place.append(function)
    pointer.value = ctypes.cast(function, ctypes.c_void_p).value
    return partial(setattr, pointer, "value", usual)


# Mapping a model's file without reading all of it first, for models larger than memory (Linux).
# llama.cpp has the system read a whole file while it maps it (MAP_POPULATE): a file of 40 GB is
# read for the better part of a minute, in vain, and nothing can stop it. It leaves that out on
# machines with several memory nodes (NUMA), and asks the registry of its processor backend whether
# it runs on one: then the registry says so.

_QUESTION = b"ggml_backend_cpu_is_numa"


@ctypes.CFUNCTYPE(ctypes.c_bool)
def _yes() -> bool:
    return True


def only_map(closing: ExitStack) -> None:
    """Let files loaded before closing closes only be mapped, where this engine allows that.

    The system is then told to expect reads in no order, which is to be taken back afterwards.
    """

    def answer(find: Callable[..., int | None], registry: int, name: bytes) -> int | None:
        yes = ctypes.cast(_yes, ctypes.c_void_p).value
        return yes if name == _QUESTION else find(registry, name)

    if sys.platform == "linux" and (registry := _registry()):
        closing.callback(_wrap(registry + _FIND_FUNCTION, _FindFunction, answer))


# Loading without most of the weights, for a process that only finds out whether a model runs.
# What a GPU gets, and what the processor has rearranged, is copied into buffers by a function of
# their own, which here copies tables and norms alone: passes take indices from tables.

_NO_MATRICES = (
    *(api.GGML_TYPE_F32, api.GGML_TYPE_F64),
    *(api.GGML_TYPE_I8, api.GGML_TYPE_I16, api.GGML_TYPE_I32, api.GGML_TYPE_I64),
)
_MORE_TYPES = b"ggml_backend_dev_get_extra_bufts"


def leave_out_matrices(closing: ExitStack) -> None:
    """Let buffers that are made before closing closes take no matrices."""

    def copied(copy: Callable[..., None], buffer: int, tensor: int, *data: int) -> None:
        if ctypes.c_int.from_address(tensor).value in _NO_MATRICES:  # it begins with its type
            copy(buffer, tensor, *data)

    def made(allocate: Callable[..., int | None], kind: int, size: int) -> int | None:
        if buffer := allocate(kind, size):
            _wrap(buffer + _COPY, _Copy, copied)
        return buffer

    for kind in _buffer_types() if _registry() else ():
        closing.callback(_wrap(kind + _ALLOCATE, _Allocate, made))


def _buffer_types() -> Iterator[int]:
    """Addresses of the types of buffer that weights may be copied into."""
    base = library.shared_library("ggml-base")
    for name in ("dev_buffer_type", "dev_backend_reg", "reg_get_proc_address"):
        getattr(base, f"ggml_backend_{name}").restype = ctypes.c_void_p
    for device in map(ctypes.c_void_p, library.device_pointers()):
        yield base.ggml_backend_dev_buffer_type(device)
        registry = ctypes.c_void_p(base.ggml_backend_dev_backend_reg(device))
        if asked := base.ggml_backend_reg_get_proc_address(registry, _MORE_TYPES):
            listed = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(asked)
            yield from takewhile(bool, listed(device) or ())


class LlamaBaseline(BaselineEngine):
    """A model run by llama-cpp-python with the settings its documentation recommends."""

    def __init__(
        self,
        path: Path,
        n_ctx: int,
        threads: int,
        gpu_layers: int,
        cache_type: CacheType,
        *,
        drafts: bool = True,
    ) -> None:
        """Load the model; raises ModelError if that fails. gpu_layers: negative for all."""
        self.name = f"llama-cpp-python {'lookup' if drafts else 'plain'}"
        lookup = LlamaPromptLookupDecoding(num_pred_tokens=10 if gpu_layers else 2)
        is_quantized = cache_type is not CacheType.F16
        kind = GGML_TYPES[cache_type]
        library.start()
        try:
            self._llama = Llama(
                str(path),
                n_ctx=n_ctx,
                n_threads=threads,
                n_threads_batch=threads,
                n_gpu_layers=gpu_layers,
                type_k=kind,
                type_v=kind,
                flash_attn=is_quantized,  # which quantized values need
                draft_model=lookup if drafts else None,
                logits_all=drafts,  # or no prompt may be longer than a batch
                verbose=False,
            )
        except (ValueError, RuntimeError, MemoryError) as error:
            raise ModelError(f"{self.name} cannot be compared", str(error)) from error

    def tokens(
        self, prompt: Sequence[int], warping: Warping, seed: int, max_tokens: int
    ) -> Iterable[int]:
        del max_tokens
        self._llama.set_seed(seed)
        return self._llama.generate(
            list(prompt),
            temp=warping.temperature,
            top_k=warping.top_k,
            top_p=warping.top_p,
            min_p=warping.min_p,
            repeat_penalty=1.0,
        )

    def empty(self) -> None:
        self._llama.reset()

    def close(self) -> None:
        self._llama.close()
