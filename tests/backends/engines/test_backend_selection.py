"""Which backend runs a model: by the model's form, the machine, and what was asked for."""

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
from backends.hardware.host import Machine

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
    with pytest.raises(UsageError, match="known: auto, llamacpp, mlx"):
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
