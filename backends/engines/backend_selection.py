"""Backends by name: which one runs a model here, and importing its engine."""

from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from backends.base import ModelError, SpecchatError, UsageError
from backends.files.mlx_gguf import reason_against
from backends.hardware.host import Machine, this_machine

BACKENDS = AUTO, LLAMACPP, MLX, REMOTE = "auto", "llamacpp", "mlx", "remote"
"""REMOTE: a server answers, and nothing is run here."""


def check_backend(name: str) -> None:
    """Refuse an unknown backend. Raises UsageError: there is no backend of that name."""
    if name not in BACKENDS:
        raise UsageError(f"--backend cannot be {name!r}", f"it is one of {', '.join(BACKENDS)}")


BUILD_CUDA = "specchat build cuda"
REBUILD_LLAMACPP = "uv sync --reinstall-package llama-cpp-python"


def mlx_command(machine: Machine) -> str:
    return "uv sync" if machine.is_apple_silicon else "uv sync --extra mlx-cpu"


@contextmanager
def importing_engine(backend: str) -> Generator[None]:
    """Report an engine that fails to import or start within the block.

    Raises:
        ModelError: in place of the engine's own exception.
    """
    try:
        yield
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        name, command = "llama.cpp", REBUILD_LLAMACPP
        if backend == MLX:
            name = "MLX"
            command = f"{mlx_command(this_machine())} --reinstall-package mlx"
        remedy = f"Install it again: {command}"
        raise ModelError(f"{name} cannot be started here", str(error), remedy) from error


class Form(StrEnum):
    """File format of a model's weights."""

    GGUF = "gguf"
    MLX = "mlx"


def form_of(path: Path) -> Form:
    return Form.MLX if path.is_dir() else Form.GGUF


def forms(wanted: str, machine: Machine | None = None) -> tuple[Form, ...]:
    """Forms to look for where a model is available in several, in order of preference."""
    machine = machine or this_machine()
    if wanted == MLX:
        return (Form.MLX,)
    if wanted == AUTO and machine.is_apple_silicon and machine.has_mlx:
        return (Form.MLX, Form.GGUF)
    return (Form.GGUF,)


def backend_for(path: Path, wanted: str = AUTO, machine: Machine | None = None) -> str:
    """Backend that runs a GGUF file or an MLX folder here.

    Raises:
        UsageError: the wanted backend cannot run such a model.
        ModelError: the backend is not installed, or the file is missing or damaged.
    """
    _check_runs_here(str(path), wanted)
    machine = machine or this_machine()
    obstacle: SpecchatError | None = None
    for backend in _candidates(path, wanted, machine):
        obstacle = _obstacle(path, backend, machine)
        if obstacle is None:
            return backend
    assert obstacle is not None
    raise obstacle


def backend_for_form(name: str, form: Form, wanted: str = AUTO) -> str:
    """Backend expected to run a model that is not downloaded yet.

    Raises:
        UsageError: the wanted backend cannot run this form.
        ModelError: the backend is not installed.
    """
    _check_runs_here(name, wanted)
    backend = wanted if wanted != AUTO else MLX if form is Form.MLX else LLAMACPP
    obstacle = _obstacle_for_form(name, form, backend, this_machine())
    if obstacle is not None:
        raise obstacle
    return backend


def _check_runs_here(name: str, wanted: str) -> None:
    if wanted == REMOTE:
        why = "with --backend remote a server answers"
        raise UsageError(f"{name} is not run here", why, "Use --backend auto for this.")


def _candidates(path: Path, wanted: str, machine: Machine) -> tuple[str, ...]:
    if wanted != AUTO:
        return (wanted,)
    if path.is_dir():
        return (MLX,)
    prefers_mlx = machine.is_apple_silicon or not machine.has_llamacpp
    return (MLX, LLAMACPP) if prefers_mlx else (LLAMACPP,)


def _obstacle(path: Path, backend: str, machine: Machine) -> SpecchatError | None:
    """Why a backend cannot run a model here, None if it can."""
    form = form_of(path)
    obstacle = _obstacle_for_form(str(path), form, backend, machine)
    if obstacle is not None or backend == LLAMACPP or form is Form.MLX:
        return obstacle
    reason = reason_against(path)
    remedy = "Use --backend auto or llamacpp, or an MLX folder."
    return UsageError(f"MLX cannot run {path}", reason, remedy) if reason else None


def _obstacle_for_form(
    name: str, form: Form, backend: str, machine: Machine
) -> SpecchatError | None:
    is_mlx = form is Form.MLX
    if backend == LLAMACPP and is_mlx:
        why = "it is an MLX folder, and llama.cpp runs GGUF files"
        return UsageError(f"llama.cpp cannot run {name}", why, "Use --backend auto or mlx.")
    if backend == LLAMACPP and not machine.has_llamacpp:
        return ModelError("llama.cpp is not installed", "", "Install it with: uv sync")
    if backend == MLX and not machine.has_mlx:
        why = f"{name} is an MLX folder" if is_mlx else ""
        return ModelError("MLX is not installed", why, f"Install it with: {mlx_command(machine)}")
    return None
