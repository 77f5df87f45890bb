"""Chooses the backend that runs a model: by what the model is, and by what this machine has."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from pathlib import Path

from backends.bandwidth import Bandwidth
from backends.base import Model, ModelError, SpecchatError, UsageError, Vocabulary
from backends.device import available_memory
from backends.machine import Machine, this_machine
from backends.mlx_gguf import reason_against
from backends.peer import Peer

BACKENDS = AUTO, LLAMACPP, MLX = "auto", "llamacpp", "mlx"
REBUILD_LLAMACPP = "uv sync --reinstall-package llama-cpp-python"


class Form(StrEnum):
    """How the weights of a model are kept."""

    GGUF = "gguf"
    MLX = "mlx"


def form_of(path: Path) -> Form:
    """How the weights of a model on this machine are kept."""
    return Form.MLX if path.is_dir() else Form.GGUF


def check_backend(name: str) -> None:
    """Refuse a name that is no backend.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in BACKENDS:
        raise UsageError(f"there is no backend {name!r}", f"known: {', '.join(BACKENDS)}")


def forms(wanted: str, machine: Machine | None = None) -> tuple[Form, ...]:
    """Which forms of a model to look for where it comes in several, the best first."""
    machine = machine or this_machine()
    if wanted == MLX:
        return (Form.MLX,)
    if wanted == AUTO and machine.is_apple_silicon and machine.has_mlx:
        return (Form.MLX, Form.GGUF)
    return (Form.GGUF,)


def backend_for(path: Path, wanted: str = AUTO, machine: Machine | None = None) -> str:
    """The backend that runs a GGUF file or an MLX folder here.

    Raises:
        UsageError: the wanted one cannot run such a model.
        ModelError: the one that could is not installed, or the file is missing or damaged.
    """
    machine = machine or this_machine()
    hindrance: SpecchatError | None = None
    for backend in _order(path, wanted, machine):
        hindrance = _hindrance(path, backend, machine)
        if hindrance is None:
            return backend
    assert hindrance is not None
    raise hindrance


def _order(path: Path, wanted: str, machine: Machine) -> tuple[str, ...]:
    if wanted != AUTO:
        return (wanted,)
    if path.is_dir():
        return (MLX,)
    prefers_mlx = machine.is_apple_silicon or not machine.has_llamacpp
    return (MLX, LLAMACPP) if prefers_mlx else (LLAMACPP,)


def backend_for_form(name: str, form: Form, wanted: str = AUTO) -> str:
    """The backend that will run a model which is not here yet, as far as its form tells.

    Raises:
        UsageError: the wanted one cannot run this form.
        ModelError: the one for it is not installed.
    """
    backend = wanted if wanted != AUTO else MLX if form is Form.MLX else LLAMACPP
    hindrance = _hindrance_of_form(name, form, backend, this_machine())
    if hindrance is not None:
        raise hindrance
    return backend


def _hindrance(path: Path, backend: str, machine: Machine) -> SpecchatError | None:
    """Why a backend does not run a model here, None where it does."""
    form = form_of(path)
    found = _hindrance_of_form(str(path), form, backend, machine)
    if found is not None or backend == LLAMACPP or form is Form.MLX:
        return found
    reason = reason_against(path)
    remedy = "Use --backend auto or llamacpp, or an MLX folder."
    return UsageError(f"MLX cannot run {path}", reason, remedy) if reason else None


def _hindrance_of_form(
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


def mlx_command(machine: Machine) -> str:
    """What installs MLX."""
    return "uv sync" if machine.is_apple_silicon else "uv sync --extra mlx-cpu"


def load(
    path: Path,
    threads: int | None,
    gpu_layers: int | None,
    wanted: str = AUTO,
    experts: int | None = None,
) -> Model:
    """Load a model with the backend for it; the thread that loads it is to run it.

    experts: how many a token is sent to, None for as many as in the file; llama.cpp alone.

    Raises:
        UsageError: the wanted backend cannot run such a model, or has no such option.
        ModelError: it cannot be loaded.
    """
    backend = backend_for(path, wanted)
    if backend == MLX:
        with started(backend):
            from backends import mlx
            from backends.mlx.memory import raise_wired_limit
        raise_wired_limit()
        assert experts is None, "MLX makes such drafters of loaded weights"
        return mlx.load(path, gpu_layers=gpu_layers)
    with started(backend):
        from backends import llamacpp
    return llamacpp.load(path, threads=threads, gpu_layers=gpu_layers, experts=experts)


def free_memory(backend: str, gpu_layers: int | None) -> int | None:
    """Bytes free for models where they will run; None on a GPU that tells only when asked for.

    Raises:
        ModelError: the engine cannot be started.
    """
    if backend == MLX:
        with started(backend):
            from backends.mlx.memory import free_memory as free_for_mlx
        return free_for_mlx()
    with started(backend):
        from backends.llamacpp import library
    on_gpu = gpu_layers != 0 and library.can_offload()
    return None if on_gpu else available_memory()


def check_gpu_layers(backend: str, gpu_layers: int | None) -> None:
    """Refuse layers on a GPU that a backend cannot bring there.

    Raises:
        UsageError: it cannot.
        ModelError: the engine cannot be started.
    """
    with started(backend):
        if backend == MLX:
            from backends.mlx import library
        else:
            from backends.llamacpp import library
    library.check_gpu_layers(gpu_layers)


def vocabulary(path: Path) -> AbstractContextManager[Vocabulary]:
    """The vocabulary of a model whose weights stay on disk, valid within the block.

    Raises:
        ModelError: the model cannot be read, or what reads it is not installed.
    """
    if path.is_dir():
        backend_for(path, MLX)
        with started(MLX):
            from backends.mlx.vocabulary import vocabulary as of_folder
        return of_folder(path)
    with started(LLAMACPP):
        from backends.llamacpp.vocabulary import vocabulary as of_file
    return of_file(path)


def bandwidth_of_mlx() -> Bandwidth | None:
    """What the device that MLX runs on reads in a second, None where memory is short."""
    with started(MLX):
        from backends.mlx.bandwidth import measured_on_device
    return measured_on_device()


def peers(model: Model, n_ctx: int, drafter: Model | None) -> Sequence[Peer]:
    """What else generates with a loaded model here, the engine's own drafting included.

    drafter: of the model's vocabulary, where there is one.

    Raises:
        ModelError: it cannot load the model.
    """
    info = model.info
    if info.backend == MLX:
        with started(MLX):
            from backends.mlx.peer import peers_of
        return peers_of(model, drafter)
    with started(LLAMACPP):
        from backends.llamacpp.peer import LlamaPeer
    return [LlamaPeer(info.path, n_ctx, info.threads, on_gpu=info.device.startswith("GPU"))]


@contextmanager
def started(backend: str) -> Iterator[None]:
    """Around importing an engine, which is left until a model is loaded."""
    try:
        yield
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        name, command = "llama.cpp", REBUILD_LLAMACPP
        if backend == MLX:
            name = "MLX"
            command = f"{mlx_command(this_machine())} --reinstall-package mlx"
        remedy = f"Install it again: {command}"
        raise ModelError(f"{name} cannot be started here", str(error), remedy) from error
