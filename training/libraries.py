"""Which library of arrays trains here."""

from importlib.util import find_spec

from backends.base import UsageError
from training.arrays import Arrays


class NoArraysError(UsageError):
    """No library that trains is installed."""

    def __init__(self) -> None:
        super().__init__(
            "cannot train on this machine",
            "neither PyTorch nor MLX is installed",
            "Install specchat with its extra: pip install 'specchat[train]'.",
        )


def open_arrays(products: str = "") -> Arrays:
    """The fastest library here: MLX on Apple's GPU, else PyTorch, 100 times MLX on a processor.

    products: as a run has begun with, empty to choose.

    Raises:
        NoArraysError: there is none.
    """
    has_torch, has_mlx = find_spec("torch") is not None, find_spec("mlx") is not None
    if has_mlx:
        from training.mlx_arrays import MlxArrays

        if MlxArrays.is_fast() or not has_torch:
            return MlxArrays()
    if has_torch:
        from training.torch_arrays import TorchArrays

        return TorchArrays(products)
    raise NoArraysError
