"""Arrays of MLX: on Apple's GPU, on CUDA, and slowly on a processor."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from training.arrays import Array, Weights

_done = cast("Callable[..., None]", mx.eval)  # pyright: ignore[reportUnknownMemberType]


class MlxArrays:
    """Products are of float32 on a processor: MLX has no fast ones in half precision there."""

    def __init__(self) -> None:
        has_gpu = self.is_fast()
        self.name = f"MLX on {'the GPU' if has_gpu else 'the processor'}"
        self.products = "bfloat16" if has_gpu else "float32"
        self._type: Any = getattr(mx, self.products)

    @staticmethod
    def is_fast() -> bool:
        """Whether it has a GPU."""
        return mx.default_device() == mx.Device(mx.gpu)

    def array(self, values: NDArray[Any]) -> Array:
        return mx.array(values)

    def numpy(self, array: Array) -> NDArray[Any]:
        return np.array(array)

    def product(self, rows: Array, matrix: Array) -> Array:
        return (rows.astype(self._type) @ matrix.astype(self._type).T).astype(mx.float32)

    def concatenated(self, parts: Sequence[Array], axis: int) -> Array:
        return mx.concatenate(list(parts), axis)

    def rows(self, array: Array, numbers: Array) -> Array:
        return array[numbers]

    def along(self, array: Array, numbers: Array) -> Array:
        return mx.take_along_axis(array, numbers, -1)

    def where(self, condition: Array, values: Array, otherwise: Array) -> Array:
        return mx.where(condition, values, otherwise)

    def minimum(self, one: Array, other: Array) -> Array:
        return mx.minimum(one, other)

    def silu(self, array: Array) -> Array:
        return array * mx.sigmoid(array)

    def softmax(self, array: Array) -> Array:
        return mx.softmax(array, axis=-1)

    def log_sum_exp(self, array: Array) -> Array:
        return mx.logsumexp(array, axis=-1)

    def likeliest(self, array: Array) -> Array:
        return array.argmax(-1).astype(mx.int32)

    def constant(self, array: Array) -> Array:
        return mx.stop_gradient(array)

    def value_and_gradients(
        self, loss: Callable[[Weights], Array], weights: Weights
    ) -> tuple[float, Weights]:
        value, found = mx.value_and_grad(loss)(dict(weights))
        _done(value, found)
        return float(value), found

    def settled(self, weights: Weights) -> Weights:
        _done(dict(weights))
        return weights


def dequantized(file: Path, name: str, quantization: Mapping[str, Any]) -> NDArray[np.float32]:
    """A weight of a folder's file, whether it is quantized or not."""
    stored: Any = mx.load(str(file))
    weight = stored[f"{name}.weight"]
    if f"{name}.scales" in stored:
        facts: dict[str, Any] = {**quantization, **(quantization.get(name) or {})}
        weight = mx.dequantize(
            weight,
            stored[f"{name}.scales"],
            stored.get(f"{name}.biases"),
            facts["group_size"],
            facts["bits"],
            facts.get("mode", "affine"),
        )
    return cast("NDArray[np.float32]", np.array(weight.astype(mx.float32)))
