"""Memory, GPU support and bandwidth as an engine reports them."""

from backends.engines.backend_names import LLAMACPP, MLX
from backends.engines.engine_import import importing_engine
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.host import available_memory


def free_memory(backend: str, gpu_layers: int | None) -> int | None:
    """Bytes free for models where they will run; None for a GPU that does not report them.

    Raises:
        ModelError: the engine cannot be started.
    """
    if backend == MLX:
        with importing_engine(MLX):
            from backends.mlx.mlx_device import free_memory as free_memory_of_mlx
        return free_memory_of_mlx()
    with importing_engine(LLAMACPP):
        from backends.llamacpp import library
    on_gpu = gpu_layers != 0 and library.can_offload()
    return None if on_gpu else available_memory()


def check_gpu_layers(backend: str, gpu_layers: int | None) -> None:
    """Refuse a number of GPU layers that a backend does not support.

    Raises:
        UsageError: it does not.
        ModelError: the engine cannot be started.
    """
    with importing_engine(backend):
        if backend == MLX:
            from backends.mlx.mlx_device import check_gpu_layers as check
        else:
            from backends.llamacpp.library import check_gpu_layers as check
    check(gpu_layers)


def bandwidth_of_mlx() -> Bandwidth | None:
    """Memory bandwidth of MLX's device, None if too little memory is free to measure it."""
    with importing_engine(MLX):
        from backends.mlx.mlx_device import measured_on_device
    return measured_on_device()
