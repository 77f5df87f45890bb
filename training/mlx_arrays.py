"""Arrays of MLX: on Apple's GPU, on CUDA, and slowly on a processor."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from backends.files.mlx_folder import WEIGHT_FILES
from training.arrays import Array, Weights

_done = cast("Callable[..., None]", mx.eval)  # pyright: ignore[reportUnknownMemberType]


class MlxArrays:
    """Products are of float32 on a processor: MLX has no fast ones in half precision there."""

    ops = mx

    def __init__(self) -> None:
        self._type: Any = mx.bfloat16 if self.has_gpu() else mx.float32

    @staticmethod
    def has_gpu() -> bool:
        return mx.default_device() == mx.Device(mx.gpu)

    def array(self, values: NDArray[Any]) -> Array:
        return mx.array(values)

    def numpy(self, array: Array) -> NDArray[Any]:
        return np.array(array)

    def product(self, rows: Array, matrix: Array) -> Array:
        return (rows.astype(self._type) @ matrix.astype(self._type).T).astype(mx.float32)

    def along(self, array: Array, numbers: Array) -> Array:
        return mx.take_along_axis(array, numbers, -1)

    def silu(self, array: Array) -> Array:
        return array * mx.sigmoid(array)

    def value_and_gradients(
        self, loss: Callable[[Weights], Array], weights: Weights
    ) -> tuple[float, Weights]:
        _done(weights)  # with nothing left of what they were made from
        value, found = mx.value_and_grad(loss)(dict(weights))
        _done(value, found)
        return float(value), found


def stored_floats(
    folder: Path, quantization: Mapping[str, Any]
) -> tuple[Collection[str], Callable[[str], NDArray[np.float32]]]:
    """Names of all that a folder holds, and what reads a weight, whether it is quantized or not.

    It raises KeyError: there is none of that name.
    """
    stored = dict[str, Any]()
    for file in folder.glob(WEIGHT_FILES):
        stored |= cast("dict[str, Any]", mx.load(str(file)))

    def values(name: str) -> NDArray[np.float32]:
        weight = stored[f"{name}.weight"]
        if f"{name}.scales" in stored:
            facts: dict[str, Any] = {**quantization, **(quantization.get(name) or {})}
            scales, biases = stored[f"{name}.scales"], stored.get(f"{name}.biases")
            mode = facts.get("mode", "affine")
            weight = mx.dequantize(weight, scales, biases, facts["group_size"], facts["bits"], mode)
        return cast("NDArray[np.float32]", np.array(weight.astype(mx.float32)))

    return stored.keys(), values
