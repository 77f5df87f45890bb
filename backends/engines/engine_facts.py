"""What engines tell of this machine: memory, GPUs, their builds, and which one auto prefers.

What asks an engine raises a ModelError where it cannot be started.
"""

import math
import shutil
from dataclasses import dataclass
from typing import Self

from backends.base import CacheType, ModelError, ModelInfo, UsageError
from backends.engines.backend_selection import (
    BUILD_CUDA,
    LLAMACPP,
    MLX,
    REBUILD_LLAMACPP,
    importing_engine,
    mlx_command,
)
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.host import Gpu, Machine, available_memory, physical_cores, this_machine
from backends.hardware.nvidia import nvidia_cards, use_cuda_libraries


def free_memory(backend: str, gpu_layers: int | None) -> int | None:
    """Bytes free for models where they will run; None with a GPU that has memory of its own.

    A GPU that shares the machine's memory may be given less of it.
    """
    if backend == MLX:
        with importing_engine(MLX):
            from backends.mlx.device import free_memory as free_memory_of_mlx
        return free_memory_of_mlx()
    with importing_engine(LLAMACPP):
        from backends.llamacpp import library
    found = gpus(backend) if gpu_layers != 0 and library.can_offload() else None
    if found is None:
        return available_memory()
    if not found or not all(gpu.is_unified for gpu in found):
        return None
    lent = [gpu.free_bytes for gpu in found if gpu.free_bytes is not None and gpu_layers is None]
    return min([available_memory(), *lent])


def gpus(backend: str) -> tuple[Gpu, ...]:
    """GPUs that a backend puts layers on, in their order; MLX runs all layers on one, or none."""
    if backend == MLX:
        return ()
    with importing_engine(LLAMACPP):
        from backends.llamacpp import library
    return library.gpus()


def separate_gpus(backend: str, gpu_layers: int | None) -> tuple[Gpu, ...]:
    """GPUs with memory of their own, if layers may go there; () if the memory of one is unknown."""
    found = gpus(backend) if gpu_layers != 0 else ()
    is_known = all(gpu.free_bytes is not None and not gpu.is_unified for gpu in found)
    return found if is_known else ()


def check_gpu_layers(backend: str, gpu_layers: int | None) -> None:
    """Refuse GPU layers that a backend does not support. Raises UsageError: it does not."""
    with importing_engine(backend):
        if backend == MLX:
            from backends.mlx.device import check_gpu_layers as check
        else:
            from backends.llamacpp.library import check_gpu_layers as check
    check(gpu_layers)


def check_cache_type(backend: str, cache_type: CacheType | None) -> None:
    """Refuse a type of KV cache with a backend that offers none. Raises UsageError: it does not."""
    if backend == MLX and cache_type is not None:
        raise UsageError(
            f"--kv {cache_type} cannot be used with MLX",
            "its cache has the model's own type",
            "Use a GGUF file with --backend llamacpp, or leave it out.",
        )


def bandwidth_of_mlx() -> Bandwidth | None:
    """Memory bandwidth of MLX's device, None if too little memory is free to measure it."""
    with importing_engine(MLX):
        from backends.mlx.device import measured_on_device
    return measured_on_device()


@dataclass(frozen=True, slots=True)
class Runner:
    """Build (as in ModelInfo), device (as the engine names it) and threads.

    streamed_tenths: of the bytes that a token reads, those that come from disk. cache_type: of a
    quantized KV cache, None for any other.
    """

    engine: str
    device: str
    threads: int
    streamed_tenths: int = 0
    cache_type: CacheType | None = None

    @classmethod
    def of(cls, info: ModelInfo) -> Self:
        streamed = info.streamed_bytes_per_token / max(info.bytes_read_per_token, 1)
        return cls(
            info.engine, info.device, info.threads, tenths(streamed), quantized(info.cache_type)
        )


def quantized(cache_type: CacheType | None) -> CacheType | None:
    """The type if it makes a pass other work than usual; None for half floats or the engine's."""
    return None if cache_type is CacheType.F16 else cache_type


def tenths(share: float) -> int:
    """Tenths that a share makes; more than none for any share."""
    return math.ceil(10.0 * share)


def expected_runner(backend: str, threads: int | None, gpu_layers: int | None) -> Runner:
    """Runner of a model loaded with a backend and these options."""
    with importing_engine(backend):
        if backend == MLX:
            from backends.mlx import device as mlx_device

            return Runner(mlx_device.build(), mlx_device.device(), physical_cores())
        from backends.llamacpp import library

        device = library.device(gpu_layers)
        return Runner(library.build(), device, threads or physical_cores())


_NEAR = 0.9
"""Share of the working set above which a model is slow: mlx-lm warns there too."""

_ROOM = 1.2
"""Memory of a model with its context, relative to the size of its files."""

_MOST_OF_MACHINE = 0.9
_MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine: its build, or the problem that keeps it from running."""

    backend: str
    build: str
    on_gpu: bool = False
    problem: str = ""
    working_set: int | None = None
    """Most bytes the system recommends its GPU to use, None if unknown."""
    has_rpc: bool = False
    """Whether it can use other machines."""

    @property
    def works(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class Engines:
    """Both engines, the one auto prefers with the reason, and advice on faster builds."""

    chosen: EngineFacts
    reason: str
    other: EngineFacts
    advice: str


def describe_engines(machine: Machine | None = None) -> Engines:
    machine = machine or this_machine()
    return weighed(_llamacpp(machine), _mlx(machine), machine)


def weighed(llamacpp: EngineFacts, mlx: EngineFacts, machine: Machine) -> Engines:
    """Compare two engines: which one auto prefers on a machine, and why."""
    advice = _advice(llamacpp, mlx, machine)
    if mlx.works and (machine.is_apple_silicon or not llamacpp.works):
        reason = "the fastest on Apple Silicon" if machine.is_apple_silicon else llamacpp.problem
        if llamacpp.works:
            reason += "; llama.cpp runs the GGUF files that it cannot read"
        return Engines(mlx, reason, llamacpp, advice)
    if not llamacpp.works:
        reason = llamacpp.problem
    elif llamacpp.on_gpu:
        reason = "its build drives a GPU here"
    else:
        reason = "its build runs on the processor alone"
    if mlx.works:
        reason += "; MLX, which is installed too, is used for MLX folders"
    return Engines(llamacpp, reason, mlx, advice)


def idle_card() -> str | None:
    """Name of an NVIDIA card that the installed build of llama.cpp has no use for."""
    cards = nvidia_cards()
    return cards.names[0] if cards and not _llamacpp(this_machine()).on_gpu else None


def wired_limit_advice(name: str, size: int, working_set: int, memory: int) -> str:
    """Advice for a model too large for the GPU's working set on Apple Silicon; "" if it fits.

    size, working_set, memory: bytes of the model, the set and the machine. Source of the command:
    mlx-lm's README, on large models.
    """
    if size <= _NEAR * working_set:
        return ""
    why = (
        f"{name} takes {size / 1e9:.1f} GB, and the GPU is meant to use {working_set / 1e9:.1f} GB"
    )
    wanted = min(_ROOM * size, _MOST_OF_MACHINE * memory)
    if wanted <= size:
        return f"{why} of {memory / 1e9:.1f} GB: use a smaller quantization"
    megabytes = -int(-wanted // _MEGABYTE)
    return f"{why}: sudo sysctl iogpu.wired_limit_mb={megabytes}"


def _llamacpp(machine: Machine) -> EngineFacts:
    if not machine.has_llamacpp:
        return EngineFacts(LLAMACPP, "", problem="llama.cpp is not installed")
    try:
        with importing_engine(LLAMACPP):
            from backends.llamacpp import library, rpc
        return EngineFacts(LLAMACPP, library.build(), library.can_offload(), has_rpc=rpc.has_rpc())
    except ModelError as error:
        return EngineFacts(LLAMACPP, "", problem=f"{error.what}: {error.why}")


def _mlx(machine: Machine) -> EngineFacts:
    if not machine.has_mlx:
        why = "" if machine.is_apple_silicon else ": it is for Apple Silicon"
        return EngineFacts(MLX, "", problem=f"MLX is not installed{why}")
    try:
        with importing_engine(MLX):
            from backends.mlx import device as mlx_device
        return EngineFacts(
            MLX, mlx_device.build(), mlx_device.has_gpu(), working_set=mlx_device.working_set()
        )
    except ModelError as error:
        return EngineFacts(MLX, "", problem=f"{error.what}: {error.why}")


def _advice(llamacpp: EngineFacts, mlx: EngineFacts, machine: Machine) -> str:
    """Commands that install faster builds, as far as this machine's GPU can be detected."""
    if machine.is_apple_silicon:
        return _advice_for_apple(llamacpp, mlx, machine)
    if llamacpp.on_gpu:
        return "nothing: models run on the GPU"
    if fault := use_cuda_libraries():
        return f"the build for CUDA cannot be loaded ({fault}); to make it anew: {BUILD_CUDA}"
    if cards := nvidia_cards():
        return f"build llama.cpp for {cards.names[0]}: {BUILD_CUDA}"
    if shutil.which("rocminfo"):
        return f'with ROCm installed: CMAKE_ARGS="-DGGML_HIP=on" {REBUILD_LLAMACPP}'
    if shutil.which("vulkaninfo"):
        return f'with the Vulkan SDK installed: CMAKE_ARGS="-DGGML_VULKAN=on" {REBUILD_LLAMACPP}'
    return "no GPU was found; smaller quantizations (Q4_0) decode faster than larger ones"


def _advice_for_apple(llamacpp: EngineFacts, mlx: EngineFacts, machine: Machine) -> str:
    commands: list[str] = []
    if not mlx.works:
        commands.append(f"for MLX: {mlx_command(machine)}")
    if not llamacpp.on_gpu:
        commands.append(f'for Metal: CMAKE_ARGS="-DGGML_METAL=on" {REBUILD_LLAMACPP}')
    return "; ".join(commands) or "nothing: models run on the GPU"
