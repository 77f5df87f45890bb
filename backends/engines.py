"""What runs models on this machine, and the commands that install what would be faster."""

import shutil
from dataclasses import dataclass

from backends.base import ModelError
from backends.choice import LLAMACPP, MLX, REBUILD_LLAMACPP, mlx_command, started
from backends.machine import Machine, this_machine

_NEAR = 0.9
"""Share of the working set from which a model is slow: mlx-lm warns there too."""

_ROOM = 1.2
"""What a model with its context takes, in sizes of its files."""

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
    """Bytes the system recommends its GPU to use at most, where that tells."""

    @property
    def works(self) -> bool:
        """Whether it runs models here."""
        return not self.problem


@dataclass(frozen=True, slots=True)
class Engines:
    """Both engines, the one that auto prefers here with the reason, and what would be faster."""

    chosen: EngineFacts
    reason: str
    other: EngineFacts
    advice: str


def describe_engines(machine: Machine | None = None) -> Engines:
    """The engines of this machine."""
    machine = machine or this_machine()
    return weighed(_llamacpp(machine), _mlx(machine), machine)


def weighed(llamacpp: EngineFacts, mlx: EngineFacts, machine: Machine) -> Engines:
    """Which of two engines auto prefers on a machine, and why."""
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
        reason += "; MLX, which is here too, is used for MLX folders"
    return Engines(llamacpp, reason, mlx, advice)


def wired_limit_advice(name: str, size: int, working_set: int, memory: int) -> str:
    """What lets a model of size bytes stay in memory on Apple Silicon; "" where it does anyway.

    memory: bytes of the machine. Source of the command: mlx-lm's README, on large models.
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
        with started(LLAMACPP):
            from backends.llamacpp import library
        return EngineFacts(LLAMACPP, library.build(), library.can_offload())
    except ModelError as error:
        return EngineFacts(LLAMACPP, "", problem=f"{error.what}: {error.why}")


def _mlx(machine: Machine) -> EngineFacts:
    if not machine.has_mlx:
        return EngineFacts(MLX, "", problem="MLX is not installed")
    try:
        with started(MLX):
            from backends.mlx import library, memory
        return EngineFacts(
            MLX, library.build(), library.has_gpu(), working_set=memory.working_set()
        )
    except ModelError as error:
        return EngineFacts(MLX, "", problem=f"{error.what}: {error.why}")


def _advice(llamacpp: EngineFacts, mlx: EngineFacts, machine: Machine) -> str:
    """The commands that install faster builds, as far as the machine shows what it has."""
    if machine.is_apple_silicon:
        return _advice_for_apple(llamacpp, mlx, machine)
    if llamacpp.on_gpu:
        return "nothing: models run on the GPU"
    if shutil.which("nvidia-smi"):
        return f'with the CUDA toolkit installed: CMAKE_ARGS="-DGGML_CUDA=on" {REBUILD_LLAMACPP}'
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
