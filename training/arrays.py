"""What the trained nets need of a library of arrays, so that each is written once."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

Array = Any
"""Of the library: arithmetic, `@`, slices, rows by number, reshape, swapaxes, sum, mean, exp and
argmax are the same in both. Matrices are (out, in), as files have them."""
Weights = Mapping[str, Array]


class Arrays(Protocol):
    """A library on a device. Numbers are float32, products are made in what is fast there.

    ops: its functions that are the same in both: concatenate, logsumexp, minimum and softmax.
    """

    ops: Any

    def array(self, values: NDArray[Any]) -> Array: ...

    def numpy(self, array: Array) -> NDArray[Any]: ...

    def product(self, rows: Array, matrix: Array) -> Array:
        """Rows times the transposed matrix: (…, in) and (out, in) to (…, out)."""
        ...

    def along(self, array: Array, numbers: Array) -> Array:
        """Numbers (…, K) of the last axis of an array (…, V)."""
        ...

    def silu(self, array: Array) -> Array: ...

    def value_and_gradients(
        self, loss: Callable[[Weights], Array], weights: Weights
    ) -> tuple[float, Weights]: ...
