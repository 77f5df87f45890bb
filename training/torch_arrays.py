"""Arrays of PyTorch: on CUDA where it is, else on the processor."""
# pyright: basic, reportMissingImports=false
# PyTorch, of gigabytes, is in no environment in which types are checked.

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from training.arrays import Array, Weights

_WORTH_IT = 1.5
"""How much faster products in bfloat16 must be: 3.5 to 4 with AVX512-BF16, 0.1 to 0.5 without."""


class TorchArrays:
    ops = torch
    silu = staticmethod(functional.silu)

    def __init__(self, products: str = "") -> None:
        """products: empty for what is fast here."""
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # 7 % of the time
        self.products = products or self._measured()
        self._type = getattr(torch, self.products)

    def _measured(self) -> str:
        times: dict[str, float] = {}
        for name in ("float32", "bfloat16"):
            rows = torch.ones(1024, 512, dtype=getattr(torch, name), device=self._device)
            for _ in range(3):
                began = time.perf_counter()
                float((rows @ rows.T)[0, 0])
                times[name] = min(times.get(name, 9e9), time.perf_counter() - began)
        return "bfloat16" if times["float32"] > _WORTH_IT * times["bfloat16"] else "float32"

    def array(self, values: NDArray[Any]) -> Array:
        return torch.tensor(np.ascontiguousarray(values), device=self._device)

    def numpy(self, array: Array) -> NDArray[Any]:
        return array.detach().cpu().numpy()

    def product(self, rows: Array, matrix: Array) -> Array:
        return functional.linear(rows.to(self._type), matrix.to(self._type)).float()

    def along(self, array: Array, numbers: Array) -> Array:
        return array.gather(-1, numbers.long())

    def value_and_gradients(
        self, loss: Callable[[Weights], Array], weights: Weights
    ) -> tuple[float, Weights]:
        leaves = {name: values.detach().requires_grad_() for name, values in weights.items()}
        value = loss(leaves)
        found = torch.autograd.grad(value, list(leaves.values()))
        return float(value.detach()), dict(zip(leaves, found, strict=True))
