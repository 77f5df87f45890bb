"""Recipes that make a model cheaper, and their expected gain before any is made."""

from dataclasses import dataclass, replace

from backends.base import ModelInfo
from backends.engines.backend_selection import MLX
from models.self_draft.recipe import FILE_BITS, Recipe

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
    return FILE_BITS.get(recipe.quantization or "", 0.0)


# Expected gain of self-drafters before any is made, to choose the first recipe.
#
# The weights read per token and the usual acceptance of a recipe are known approximately; the cost
# of verification is not and is ignored: a recipe without a gain even then never has one.

_ACCEPTED = {
    "q8_0": 0.98, "q6_k": 0.96, "q5_k_m": 0.93, "q4_k_m": 0.88, "q4_0": 0.81, "q3_k_m": 0.78,
    "q2_k": 0.53,
}  # fmt: skip
"""Approximate acceptance: 1 - sqrt(d / 2) (Pinsker's inequality), where d is the logarithm of the
perplexity ratio in llama.cpp's list for Llama 3 8B (tools/quantize). Smaller models lose more: of
the bundled one (padded to rows that these formats allow) 0.97 of tokens were accepted in q8_0, 0.71
in q4_0 and q3_k_m, and 0.23 in q2_k."""

_ACCEPTED_BY_BITS = {8: 0.98, 4: 0.81, 3: 0.39, 2: 0.0}
"""Acceptance with MLX's formats, coarse below four bits: measured on the bundled model."""

_ACCEPTED_WITHOUT_AN_EIGHTH = 0.67
"""Measured on the bundled model without three of its thirty layers."""

_LONGEST = 4
"""Longest draft considered: verifying more takes time on any device."""

_UNARRANGED = frozenset({"Q4_1", "Q5_0", "Q5_1"})
_UNARRANGED_TIME = 2.0
"""Slowdown on processors, relative to Q4_0, of formats that llama.cpp does not repack: a token of
the bundled model took 0.46 of the time in Q4_0 as in Q4_1, with 0.90 of the bytes."""

_SLOW_FORMATS = frozenset({"q3_k_s", "q3_k_m", "q2_k"})
_SLOW_TIME = 1.2
"""Time per byte relative to Q4_0: 1.17 to 1.36 measured on the padded bundled model, two cores."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """Expected performance of a recipe. draw_cost: of a draft token, in plain steps.

    best: the speedup if verification were free.
    """

    recipe: Recipe
    acceptance: float
    draw_cost: float
    best: float

    @property
    def can_pay(self) -> bool:
        return self.best > 1.0


def prospect(info: ModelInfo) -> Prospect:
    """Most promising recipe among those with fewer bits or slightly fewer layers."""
    prospects = [_of(info, recipe) for recipe in _recipes(info)]
    return max(prospects, key=lambda each: each.best)


def _recipes(info: ModelInfo) -> list[Recipe]:
    recipes = [body for body in bodies(info) if body.experts is None]
    if info.backend == MLX and info.n_layers > 1:
        recipes.append(Recipe(None, _middle(info.n_layers)))
    return recipes or [Recipe("q2_k")]


def _of(info: ModelInfo, recipe: Recipe) -> Prospect:
    acceptance, cost = _acceptance(info, recipe), _draw_cost(info, recipe)
    return Prospect(recipe, acceptance, cost, _best(acceptance, cost))


def _acceptance(info: ModelInfo, recipe: Recipe) -> float:
    if recipe.quantization is None:
        return _ACCEPTED_WITHOUT_AN_EIGHTH
    if info.backend == MLX:
        return _ACCEPTED_BY_BITS[recipe.bits or 4]
    return _ACCEPTED[recipe.quantization]


def _draw_cost(info: ModelInfo, recipe: Recipe) -> float:
    bits = 8 * info.weight_bytes / max(info.parameters, 1)
    kept = 1.0 - len(recipe.skipped_layers) / max(info.n_layers, 1)
    if recipe.quantization is None:
        return kept
    read = bits_of(recipe, info.backend)
    if info.backend != MLX and recipe.quantization in _SLOW_FORMATS:
        read *= _SLOW_TIME
    if info.device.startswith("CPU") and info.quantization.upper() in _UNARRANGED:
        bits *= _UNARRANGED_TIME
    return kept * read / bits


def _best(acceptance: float, cost: float) -> float:
    """Speedup at the best draft length (Leviathan et al. 2023), with free verification."""
    best, expected = 0.0, 1.0
    for length in range(1, _LONGEST + 1):
        expected += acceptance**length
        best = max(best, expected / (1.0 + length * cost))
    return best


def _middle(n_layers: int) -> tuple[int, ...]:
    """An eighth of the layers, from the middle: the first and the last matter most."""
    count = max(n_layers // 8, 1)
    first = (n_layers - count) // 2
    return tuple(range(first, first + count))
