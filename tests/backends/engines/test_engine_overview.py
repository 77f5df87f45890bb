"""What `doctor` says of the engines: which one auto prefers, why, and what would be faster."""

import shutil
from dataclasses import replace

import pytest

from backends.engines.backend_selection import LLAMACPP, MLX
from backends.engines.engine_facts import EngineFacts, weighed, wired_limit_advice
from backends.hardware.host import Machine
from backends.hardware.nvidia import NvidiaCards

LINUX = Machine(is_apple_silicon=False, has_llamacpp=True, has_mlx=True)
MAC = replace(LINUX, is_apple_silicon=True)
ON_CPU = EngineFacts(LLAMACPP, "a build")
ON_GPU = replace(ON_CPU, on_gpu=True)
OF_MLX = EngineFacts(MLX, "MLX 1")
NO_MLX = EngineFacts(MLX, "", problem="MLX is not installed")
NO_LLAMACPP = EngineFacts(LLAMACPP, "", problem="llama.cpp is not installed")


def test_llamacpp_is_preferred_off_apple_silicon() -> None:
    found = weighed(ON_CPU, OF_MLX, LINUX)
    assert (found.chosen, found.other) == (ON_CPU, OF_MLX)
    assert (
        found.reason == "its build runs on the processor alone; "
        "MLX, which is installed too, is used for MLX folders"
    )


def test_mlx_is_preferred_on_apple_silicon() -> None:
    found = weighed(ON_GPU, OF_MLX, MAC)
    assert (found.chosen, found.other) == (OF_MLX, ON_GPU)
    assert found.advice == "nothing: models run on the GPU"


def test_what_is_installed_is_preferred_to_what_is_not() -> None:
    assert weighed(NO_LLAMACPP, OF_MLX, LINUX).chosen == OF_MLX
    on_mac = weighed(ON_GPU, NO_MLX, MAC)
    assert on_mac.chosen == ON_GPU
    assert on_mac.advice == "for MLX: uv sync"
    neither = weighed(NO_LLAMACPP, NO_MLX, LINUX)
    assert neither.reason == "llama.cpp is not installed"


@pytest.mark.parametrize(
    ("tool", "flag"),
    [("rocminfo", "GGML_HIP"), ("vulkaninfo", "GGML_VULKAN")],
)
def test_the_command_for_a_faster_build_is_that_of_the_gpu_found(
    monkeypatch: pytest.MonkeyPatch, tool: str, flag: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == tool else None)
    assert f'CMAKE_ARGS="-D{flag}=on" uv sync' in weighed(ON_CPU, NO_MLX, LINUX).advice
    assert weighed(ON_GPU, NO_MLX, LINUX).advice == "nothing: models run on the GPU"


def test_for_an_nvidia_card_specchat_makes_the_faster_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cards = NvidiaCards(("NVIDIA H100",), ("90",), 13000)
    monkeypatch.setattr("backends.engines.engine_facts.nvidia_cards", lambda: cards)
    advice = weighed(ON_CPU, NO_MLX, LINUX).advice
    assert advice == "build llama.cpp for NVIDIA H100: specchat build cuda"
    assert weighed(ON_GPU, NO_MLX, LINUX).advice == "nothing: models run on the GPU"


def test_a_model_near_the_working_set_comes_with_the_command_that_raises_the_limit() -> None:
    gigabyte = 1 << 30
    assert wired_limit_advice("big", 10 * gigabyte, 12 * gigabyte, 16 * gigabyte) == ""
    near = wired_limit_advice("big", 11 * gigabyte, 12 * gigabyte, 16 * gigabyte)
    assert near.endswith(": sudo sysctl iogpu.wired_limit_mb=13517")
    too_large = wired_limit_advice("big", 15 * gigabyte, 12 * gigabyte, 16 * gigabyte)
    assert too_large.endswith("use a smaller quantization")
