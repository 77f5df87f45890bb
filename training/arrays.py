"""What the trained nets need of a library of arrays, so that each is written once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = Any
"""Of the library: arithmetic, `@`, slices, reshape, swapaxes, sum, mean, exp, log and square are
the same in both. Matrices are (out, in), as files have them."""
Weights = Mapping[str, Array]


class Arrays(Protocol):
    """A library on a device. Numbers are float32, products are made in what is fast there.

    name: of library and device. products: type of the factors, float32 or bfloat16; a run that
    goes on keeps it, as results are the same bit by bit only then.
    """

    name: str
    products: str

    def array(self, values: NDArray[Any]) -> Array: ...

    def numpy(self, array: Array) -> NDArray[Any]: ...

    def product(self, rows: Array, matrix: Array) -> Array:
        """Rows times the transposed matrix: (…, in) and (out, in) to (…, out)."""
        ...

    def concatenated(self, parts: Sequence[Array], axis: int) -> Array: ...

    def rows(self, array: Array, numbers: Array) -> Array:
        """Rows of a matrix by number."""
        ...

    def along(self, array: Array, numbers: Array) -> Array:
        """Numbers (…, K) of the last axis of an array (…, V)."""
        ...

    def where(self, condition: Array, values: Array, otherwise: Array) -> Array: ...

    def minimum(self, one: Array, other: Array) -> Array: ...

    def silu(self, array: Array) -> Array: ...

    def softmax(self, array: Array) -> Array: ...

    def log_sum_exp(self, array: Array) -> Array: ...

    def likeliest(self, array: Array) -> Array:
        """Numbers of the largest values of the last axis, int32."""
        ...

    def constant(self, array: Array) -> Array:
        """The array, through which no gradient flows."""
        ...

    def value_and_gradients(
        self, loss: Callable[[Weights], Array], weights: Weights
    ) -> tuple[float, Weights]: ...

    def settled(self, weights: Weights) -> Weights:
        """Weights whose computation is done, so that nothing holds what they were made from."""
        ...


def as_numpy(arrays: Arrays, weights: Weights) -> dict[str, NDArray[np.float32]]:
    return {name: arrays.numpy(values) for name, values in weights.items()}
