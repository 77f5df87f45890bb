"""Memory, GPU support and bandwidth as an engine reports them."""

from backends.base import CacheType, UsageError
from backends.engines.backend_names import LLAMACPP, MLX
from backends.engines.engine_import import importing_engine
from backends.hardware.bandwidth import Bandwidth
from backends.hardware.gpu import Gpu
from backends.hardware.host import available_memory


def free_memory(backend: str, gpu_layers: int | None) -> int | None:
    """Bytes free for models where they will run; None with a GPU that has memory of its own.

    A GPU that shares the machine's memory may be given less of it.

    Raises:
        ModelError: the engine cannot be started.
    """
    if backend == MLX:
        with importing_engine(MLX):
            from backends.mlx.mlx_device import free_memory as free_memory_of_mlx
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
    """GPUs that a backend puts layers on, in their order; MLX runs all layers on one, or none.

    Raises:
        ModelError: the engine cannot be started.
    """
    if backend == MLX:
        return ()
    with importing_engine(LLAMACPP):
        from backends.llamacpp import gpu_devices
    return gpu_devices.gpus()


def separate_gpus(backend: str, gpu_layers: int | None) -> tuple[Gpu, ...]:
    """GPUs with memory of their own, if layers may go there; () if the memory of one is unknown.

    Raises:
        ModelError: the engine cannot be started.
    """
    found = gpus(backend) if gpu_layers != 0 else ()
    is_known = all(gpu.free_bytes is not None and not gpu.is_unified for gpu in found)
    return found if is_known else ()


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


def check_cache_type(backend: str, cache_type: CacheType | None) -> None:
    """Refuse a type of KV cache with a backend that offers none.

    Raises:
        UsageError: it does not.
    """
    if backend == MLX and cache_type is not None:
        raise UsageError(
            f"--kv {cache_type} cannot be used with MLX",
            "its cache has the model's own type",
            "Use a GGUF file with --backend llamacpp, or leave it out.",
        )


def bandwidth_of_mlx() -> Bandwidth | None:
    """Memory bandwidth of MLX's device, None if too little memory is free to measure it."""
    with importing_engine(MLX):
        from backends.mlx.mlx_device import measured_on_device
    return measured_on_device()
