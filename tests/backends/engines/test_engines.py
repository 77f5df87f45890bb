"""Which backend runs a model, and what is told of both engines."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backends.base import ModelError, UsageError
from backends.engines import backend_selection
from backends.engines.backend_selection import (
    AUTO,
    LLAMACPP,
    MLX,
    Form,
    backend_for,
    backend_for_form,
    check_backend,
    forms,
)
from backends.engines.engine_facts import EngineFacts, weighed, wired_limit_advice
from backends.hardware.host import Machine
from backends.hardware.nvidia import NvidiaCards

LINUX = Machine(is_apple_silicon=False, has_llamacpp=True, has_mlx=True)
MAC = Machine(is_apple_silicon=True, has_llamacpp=True, has_mlx=True)
TinyLlama = Callable[..., Path]


@pytest.fixture
def mlx_folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.mark.parametrize("machine", [LINUX, MAC])
@pytest.mark.parametrize("wanted", [AUTO, MLX])
def test_mlx_runs_folders_everywhere(mlx_folder: Path, machine: Machine, wanted: str) -> None:
    assert backend_for(mlx_folder, wanted, machine) == MLX


@pytest.mark.parametrize(
    ("machine", "wanted", "backend"),
    [
        (LINUX, AUTO, LLAMACPP),
        (LINUX, MLX, MLX),
        (MAC, AUTO, MLX),
        (MAC, LLAMACPP, LLAMACPP),
        (replace(MAC, has_mlx=False), AUTO, LLAMACPP),
        (replace(LINUX, has_llamacpp=False), AUTO, MLX),
    ],
)
def test_a_readable_file_runs_with_mlx_on_apple_silicon(
    demo_file: Path, machine: Machine, wanted: str, backend: str
) -> None:
    assert backend_for(demo_file, wanted, machine) == backend


@pytest.mark.parametrize("machine", [LINUX, MAC])
def test_a_file_that_mlx_cannot_read_runs_with_llamacpp(tiny_mamba: Path, machine: Machine) -> None:
    assert backend_for(tiny_mamba, AUTO, machine) == LLAMACPP
    with pytest.raises(UsageError, match=r"MLX cannot run .*: its architecture is mamba"):
        backend_for(tiny_mamba, MLX, machine)


def test_llamacpp_does_not_run_folders(mlx_folder: Path) -> None:
    with pytest.raises(UsageError, match=r"llama\.cpp cannot run .*MLX folder"):
        backend_for(mlx_folder, LLAMACPP, MAC)


@pytest.mark.parametrize(
    ("machine", "command"), [(LINUX, "uv sync --extra mlx-cpu"), (MAC, "uv sync")]
)
def test_where_mlx_is_missing_the_command_that_installs_it_is_named(
    mlx_folder: Path, machine: Machine, command: str
) -> None:
    with pytest.raises(ModelError, match="MLX is not installed") as missing:
        backend_for(mlx_folder, AUTO, replace(machine, has_mlx=False))
    assert missing.value.remedy == f"Install it with: {command}"


def test_a_file_needs_an_engine_that_is_installed(tiny_mamba: Path) -> None:
    with pytest.raises(ModelError, match=r"llama\.cpp is not installed"):
        backend_for(tiny_mamba, AUTO, replace(LINUX, has_llamacpp=False))


def test_a_repository_of_mlx_is_refused_before_it_is_downloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend_selection, "this_machine", lambda: LINUX)
    assert backend_for_form("org/name", Form.MLX) == MLX
    assert backend_for_form("org/name", Form.GGUF) == LLAMACPP
    with pytest.raises(UsageError, match=r"llama\.cpp cannot run org/name"):
        backend_for_form("org/name", Form.MLX, LLAMACPP)
    monkeypatch.setattr(backend_selection, "this_machine", lambda: replace(LINUX, has_mlx=False))
    with pytest.raises(ModelError, match="MLX is not installed: org/name is an MLX folder"):
        backend_for_form("org/name", Form.MLX)


def test_an_unknown_backend_is_refused() -> None:
    check_backend(AUTO)
    with pytest.raises(UsageError, match="it is one of auto, llamacpp, mlx"):
        check_backend("cuda")


@pytest.mark.parametrize(
    ("machine", "wanted", "preferred"),
    [
        (LINUX, AUTO, (Form.GGUF,)),
        (LINUX, MLX, (Form.MLX,)),
        (MAC, AUTO, (Form.MLX, Form.GGUF)),
        (MAC, LLAMACPP, (Form.GGUF,)),
        (replace(MAC, has_mlx=False), AUTO, (Form.GGUF,)),
    ],
)
def test_the_mlx_form_is_looked_for_first_where_mlx_is_fastest(
    machine: Machine, wanted: str, preferred: tuple[Form, ...]
) -> None:
    assert forms(wanted, machine) == preferred


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
    ("tool", "flag"), [("rocminfo", "GGML_HIP"), ("vulkaninfo", "GGML_VULKAN")]
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
