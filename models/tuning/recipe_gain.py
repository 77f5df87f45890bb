"""What a self-drafter is expected to gain before any was made: the recipe to begin with.

Of each recipe the weights that a token reads and the acceptance that such copies have are known
about; what checking a draft takes is not, so it is left out: whatever does not pay then never does.
"""

from dataclasses import dataclass

from backends.base import ModelInfo
from backends.engines.backend_names import MLX
from models.self_draft.recipe import Recipe
from models.tuning.base_recipes import bits_of, bodies

_ACCEPTED = {
    "q8_0": 0.98, "q6_k": 0.96, "q5_k_m": 0.93, "q4_k_m": 0.88, "q4_0": 0.81, "q3_k_m": 0.78,
    "q2_k": 0.53,
}  # fmt: skip
"""Of a copy's tokens, about: 1 - sqrt(d / 2) (Pinsker's inequality), with d the logarithm of how
much its perplexity is higher, by llama.cpp's own list for Llama 3 8B (tools/quantize). Smaller
models lose more: of the bundled one (padded to rows that these formats take) 0.97 were accepted in
q8_0, 0.71 in q4_0 and q3_k_m, and 0.23 in q2_k."""

_ACCEPTED_BY_BITS = {8: 0.98, 4: 0.81, 3: 0.39, 2: 0.0}
"""The same on MLX's grid, which is coarse below four bits: measured on the bundled model."""

_ACCEPTED_WITHOUT_AN_EIGHTH = 0.67
"""Measured on the bundled model without three of its thirty layers."""

_LONGEST = 4
"""Tokens of a draft: to check more takes time on any device, which is not counted here."""

_UNARRANGED = frozenset({"Q4_1", "Q5_0", "Q5_1"})
_UNARRANGED_TIME = 2.0
"""A processor reads these formats, which llama.cpp does not rearrange for it, so much slower than
Q4_0: a token of the bundled model's Q4_0 copy took 0.46 of one in Q4_1, with 0.90 of its bytes."""

_SLOW_FORMATS = frozenset({"q3_k_s", "q3_k_m", "q2_k"})
_SLOW_TIME = 1.2
"""What their weights take longer than Q4_0's, for their bytes: 1.17 to 1.36 were measured of the
padded bundled model, on two cores of a processor."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What is expected of a recipe. draw_cost: of a token, in plain steps.

    best: the speedup, were checking a draft free.
    """

    recipe: Recipe
    acceptance: float
    draw_cost: float
    best: float

    @property
    def can_pay(self) -> bool:
        """Whether it may be faster than plain decoding at all."""
        return self.best > 1.0


def prospect(info: ModelInfo) -> Prospect:
    """The recipe that is expected to gain most, of copies in fewer bits or a few layers less."""
    found = [_of(info, recipe) for recipe in _recipes(info)]
    return max(found, key=lambda one: one.best)


def _recipes(info: ModelInfo) -> list[Recipe]:
    found = [body for body in bodies(info) if body.experts is None]
    if info.backend == MLX and info.n_layers > 1:
        found.append(Recipe(None, _middle(info.n_layers)))
    return found or [Recipe("q2_k")]


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
    """Tokens by time at the best length, as in Leviathan et al. 2023 with free verification."""
    best, expected = 0.0, 1.0
    for length in range(1, _LONGEST + 1):
        expected += acceptance**length
        best = max(best, expected / (1.0 + length * cost))
    return best


def _middle(n_layers: int) -> tuple[int, ...]:
    """An eighth of the layers: the first and the last matter most."""
    count = max(n_layers // 8, 1)
    first = (n_layers - count) // 2
    return tuple(range(first, first + count))
