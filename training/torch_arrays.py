"""Arrays of PyTorch: on CUDA where it is, else on the processor."""
# pyright: basic, reportMissingImports=false
# PyTorch, of gigabytes, is in no environment in which types are checked.

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from training.arrays import Array, Weights


class TorchArrays:
    ops = torch
    silu = staticmethod(functional.silu)

    def __init__(self, products: str = "") -> None:
        """products: type of factors, empty for what is fast here.

        Products of bfloat16 are 3.5 to 4 times as fast with AVX512-BF16, 0.1 to 0.5 without.
        """
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # 7 % of the time
        is_fast = (
            torch.cuda.is_bf16_supported(including_emulation=False)
            if self._device == "cuda"
            else torch.cpu.get_capabilities().get("avx512_bf16", False)
        )
        self._type = getattr(torch, products or ("bfloat16" if is_fast else "float32"))

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
