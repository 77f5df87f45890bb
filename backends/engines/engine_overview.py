"""Both engines on this machine, which one auto prefers, and how to install faster builds."""

import shutil
from dataclasses import dataclass

from backends.base import ModelError
from backends.engines.backend_names import LLAMACPP, MLX
from backends.engines.engine_import import (
    BUILD_CUDA,
    REBUILD_LLAMACPP,
    importing_engine,
    mlx_command,
)
from backends.hardware.machine import Machine, this_machine
from backends.hardware.nvidia import nvidia_cards

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

    @property
    def works(self) -> bool:
        """Whether it runs models here."""
        return not self.problem


@dataclass(frozen=True, slots=True)
class Engines:
    """Both engines, the one auto prefers with the reason, and advice on faster builds."""

    chosen: EngineFacts
    reason: str
    other: EngineFacts
    advice: str


def describe_engines(machine: Machine | None = None) -> Engines:
    """Engines of this machine."""
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
            from backends.llamacpp import library
        return EngineFacts(LLAMACPP, library.build(), library.can_offload())
    except ModelError as error:
        return EngineFacts(LLAMACPP, "", problem=f"{error.what}: {error.why}")


def _mlx(machine: Machine) -> EngineFacts:
    if not machine.has_mlx:
        why = "" if machine.is_apple_silicon else ": it is for Apple Silicon"
        return EngineFacts(MLX, "", problem=f"MLX is not installed{why}")
    try:
        with importing_engine(MLX):
            from backends.mlx import mlx_device
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
