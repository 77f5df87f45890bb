"""What of a model can be in fewer bits, or go to fewer experts: the bodies that tuning tries."""

from dataclasses import replace

from backends.base import ModelInfo
from backends.engines.backend_names import MLX
from models.self_draft.recipe import Recipe

_QUANTIZATIONS = ("q8_0", "q4_0", "q3_k_m", "q2_k")
_FEWER = 0.95
"""Of the model's bits; with more a copy is hardly faster."""

_SCALE_BITS = 0.5


def bodies(info: ModelInfo) -> list[Recipe]:
    """Recipes with every layer that make a model cheaper, the gentlest first."""
    bits = 8 * info.weight_bytes / max(info.parameters, 1)
    found = [
        Recipe(name)
        for name in _QUANTIZATIONS
        if bits_of(Recipe(name), info.backend) < _FEWER * bits
    ]
    counts = {1, 2, info.active_experts // 2, info.active_experts - 1}
    experts = sorted((one for one in counts if 0 < one < info.active_experts), reverse=True)
    return [*found, *(replace(Recipe(), experts=one) for one in experts)]


def bits_of(recipe: Recipe, backend: str) -> float:
    """Of a weight of a copy in fewer bits, about, with its scales."""
    if backend == MLX:
        return (recipe.bits or 0) + _SCALE_BITS
    return recipe.file_bits or 0.0
