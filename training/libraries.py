"""Which library of arrays trains here."""

from importlib.util import find_spec

from backends.base import UsageError
from training.arrays import Arrays


def open_arrays() -> Arrays:
    """The fastest library here: MLX on Apple's GPU, else PyTorch, 100 times MLX on a processor.

    Raises:
        UsageError: none is installed.
    """
    has_torch = find_spec("torch") is not None
    if find_spec("mlx") is not None:
        from training.mlx_arrays import MlxArrays

        if MlxArrays.has_gpu() or not has_torch:
            return MlxArrays()
    if has_torch:
        from training.torch_arrays import TorchArrays

        return TorchArrays()
    raise UsageError(
        "cannot train on this machine",
        "neither PyTorch nor MLX is installed",
        "In a clone: uv sync --extra train. Elsewhere: pip install 'specchat[train]'.",
    )
