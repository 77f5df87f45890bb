"""Memory that processor and GPU share, and how much of it models may take."""

import mlx.core as mx

from backends.device import available_memory
from backends.mlx.library import has_gpu


def working_set() -> int | None:
    """Bytes the system recommends the GPU to use at most; None without Apple's GPU."""
    if not has_gpu():
        return None
    found = mx.device_info().get("max_recommended_working_set_size")
    return int(found) if found else None


def free_memory() -> int:
    """Bytes free for models: of the working set what MLX does not hold yet, else of the machine."""
    recommended = working_set()
    if recommended is None:
        return available_memory()
    return max(recommended - mx.get_active_memory(), 0)


def raise_wired_limit() -> None:
    """Keep weights in memory up to the working set, as mlx-lm does; paged out, they are slow."""
    recommended = working_set()
    if recommended is not None:
        mx.set_wired_limit(recommended)
