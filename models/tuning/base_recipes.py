"""Base recipes that tuning tries: fewer bits or fewer experts, with every layer."""

from dataclasses import replace

from backends.base import ModelInfo
from backends.engines.backend_names import MLX
from models.self_draft.recipe import Recipe

_QUANTIZATIONS = ("q8_0", "q4_0", "q3_k_m", "q2_k")
_FEWER = 0.95
"""Most bits of a copy, relative to the model's; with more it is hardly faster."""

_SCALE_BITS = 0.5


def bodies(info: ModelInfo) -> list[Recipe]:
    """Recipes with every layer that make a model cheaper, from the most accurate."""
    bits = 8 * info.weight_bytes / max(info.parameters, 1)
    requantized = [
        Recipe(name)
        for name in _QUANTIZATIONS
        if bits_of(Recipe(name), info.backend) < _FEWER * bits
    ]
    counts = {1, 2, info.active_experts // 2, info.active_experts - 1}
    experts = sorted((count for count in counts if 0 < count < info.active_experts), reverse=True)
    return [*requantized, *(replace(Recipe(), experts=count) for count in experts)]


def bits_of(recipe: Recipe, backend: str) -> float:
    """Approximate bits per weight of a requantized copy, scales included."""
    if backend == MLX:
        return (recipe.bits or 0) + _SCALE_BITS
    return recipe.file_bits or 0.0
