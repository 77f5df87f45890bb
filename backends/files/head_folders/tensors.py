"""Shapes of a head's tensors, under one set of names."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from backends.files.safetensors_header import StoredTensor

_FLOATS = frozenset({"F32", "F16", "BF16"})
_PACKED = "U32"
_WORD_BITS = 32
_BITS = frozenset({2, 3, 4, 5, 6, 8})


@dataclass(frozen=True, slots=True)
class Tensors:
    """Tensors by common name. group: weights that share a scale, where they are quantized.

    What a layout cannot have raises a ValueError in words.
    """

    by_name: Mapping[str, StoredTensor]
    group: int = 64

    def has(self, module: str) -> bool:
        """Whether a module has weights."""
        return f"{module}.weight" in self.by_name

    def matrix(self, module: str) -> tuple[int, int]:
        """Outputs and inputs of a module's weights."""
        weight = self._tensor(f"{module}.weight", 2)
        outputs, columns = weight.shape
        if f"{module}.scales" not in self.by_name:
            _require_float(f"{module}.weight", weight)
            return outputs, columns
        scales = self._tensor(f"{module}.scales", 2)
        biases = self._tensor(f"{module}.biases", 2)
        inputs = scales.shape[1] * self.group
        bits = _WORD_BITS * columns // max(inputs, 1)
        is_whole = scales.shape[0] == outputs and biases.shape == scales.shape
        if weight.dtype != _PACKED or bits not in _BITS or bits * inputs != _WORD_BITS * columns:
            is_whole = False
        if not is_whole or scales.dtype not in _FLOATS or biases.dtype != scales.dtype:
            raise ValueError(f"{module} is quantized in a way that is not known")
        return outputs, inputs

    def require(self, module: str, outputs: int, inputs: int) -> None:
        """Require a module of this shape; a bias, if it has one, must fit."""
        found = self.matrix(module)
        if found != (outputs, inputs):
            raise ValueError(
                f"{module} is {found[0]:,} × {found[1]:,}, not {outputs:,} × {inputs:,}"
            )
        if f"{module}.bias" in self.by_name:
            self.vector(f"{module}.bias", outputs)

    def vector(self, name: str, size: int = 0) -> int:
        """Numbers of a vector, which must be this many if a size is given."""
        tensor = self._tensor(name, 1)
        _require_float(name, tensor)
        if size and tensor.shape[0] != size:
            raise ValueError(f"{name} has {tensor.shape[0]:,} numbers, not {size:,}")
        return tensor.shape[0]

    def require_block(self, name: str, shape: tuple[int, ...]) -> None:
        """Require numbers of this shape."""
        tensor = self._tensor(name, len(shape))
        _require_float(name, tensor)
        if tensor.shape != shape:
            raise ValueError(f"{name} has the shape {list(tensor.shape)}, not {list(shape)}")

    def refuse_others(self, known: Iterable[str]) -> None:
        """Refuse a tensor that is not known: without it the head would draft wrongly."""
        if others := self.by_name.keys() - set(known):
            raise ValueError(f"it has a tensor {min(others)[:64]}, which is not known")

    def _tensor(self, name: str, dimensions: int) -> StoredTensor:
        if name not in self.by_name:
            raise ValueError(f"it lacks {name}")
        tensor = self.by_name[name]
        if len(tensor.shape) != dimensions or 0 in tensor.shape:
            raise ValueError(f"{name} has the shape {list(tensor.shape)}")
        return tensor


def _require_float(name: str, tensor: StoredTensor) -> None:
    if tensor.dtype not in _FLOATS:
        raise ValueError(f"{name} is of type {tensor.dtype[:20]}, which cannot be run")


def parts_of(*modules: str) -> list[str]:
    """Names of the tensors that a module of matrices may have."""
    return [f"{module}.{part}" for module in modules for part in _PARTS]


_PARTS = ("weight", "bias", "scales", "biases")
