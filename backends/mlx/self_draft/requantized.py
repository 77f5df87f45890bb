"""Copy of a model in fewer bits, which shares unchanged weights."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

import copy
import itertools
from collections.abc import Callable
from typing import Any, cast

import mlx.core as mx
from mlx import nn

_GROUP_SIZES = (64, 32)
"""Weights that share a scale, preferred first; the width must be a multiple."""

_Wanted = Callable[[str, nn.Module], object]
"""Predicate of an architecture, by path and module: whether the module is quantized."""

_Made = Callable[[nn.Module], nn.Module]
"""Requantizes a matrix."""


def in_fewer_bits(model: nn.Module, bits: int, progress: Callable[[int, int], None]) -> nn.Module:
    """Copy of a model with linear layers, experts and embeddings in so many bits per weight.

    Shared are norms, weights with no more bits, odd widths, and what the architecture keeps more
    precise (such as a router). Matrices are evaluated one by one: at most one is held in floats.
    progress: called after each with the number done and in total.
    """
    wanted = cast(
        "_Wanted", getattr(model, "quant_predicate", None) or (lambda _path, _module: True)
    )
    total = sum(_is_matrix(module) for module in model.modules())
    done = itertools.count(1)

    def made(leaf: nn.Module) -> nn.Module:
        smaller = _leaf(leaf, bits)
        progress(next(done), total)
        return smaller

    return _copied(model, "", made, wanted)


def _is_matrix(held: Any) -> bool:
    return ("scales" in held and "weight" in held) or hasattr(held, "to_quantized")


def _copied(held: Any, path: str, made: _Made, wanted: _Wanted) -> Any:
    """Copy of a module with its changed children; unchanged modules are shared."""
    if isinstance(held, nn.Module):
        if _is_matrix(held):
            return made(held) if wanted(path, held) is True else held
    elif not isinstance(held, dict | list):
        return held
    places = cast("Any", held.items() if isinstance(held, dict) else enumerate(held))
    changed: dict[Any, Any] = {}
    for key, value in places:
        new = _copied(value, f"{path}.{key}" if path else str(key), made, wanted)
        if new is not value:
            changed[key] = new
    if not changed:
        return held
    copied = copy.copy(held)
    for key, value in changed.items():
        copied[key] = value
    return copied


def _leaf(held: Any, bits: int) -> nn.Module:
    """A matrix, or one per expert, in fewer bits; the same object if it stays unchanged."""
    is_quantized = "scales" in held
    if is_quantized and (held.bits <= bits or not _is_readable(held)):
        return held
    weight = _floats(held) if is_quantized else held.weight
    group_size = next((size for size in _GROUP_SIZES if weight.shape[-1] % size == 0), None)
    if group_size is None:
        return held
    if is_quantized:
        made = copy.copy(held)
        made.weight, made.scales, made.biases = mx.quantize(weight, group_size, bits)
        made.group_size, made.bits, made.mode = group_size, bits, "affine"
    else:
        made = held.to_quantized(group_size=group_size, bits=bits)
    mx.eval(made.parameters())
    return made


def _is_readable(held: nn.Module) -> bool:
    """Whether a module holds all of its scales; some kinds also scale by the input."""
    return held.get("global_scale") is None and not isinstance(held, nn.QQLinear)


def _floats(held: Any) -> mx.array:
    return mx.dequantize(
        held.weight,
        held.scales,
        held.get("biases"),
        group_size=held.group_size,
        bits=held.bits,
        mode=held.mode,
    )
