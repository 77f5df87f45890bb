"""Recipes of self-drafters: their expected gain, and the search for the fastest one."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from backends.base import ModelInfo
from backends.engines.backend_selection import MLX
from models.self_draft.recipe import FILE_BITS, Recipe, Skipped, runs

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
    return max((_of(info, recipe) for recipe in _recipes(info)), key=lambda each: each.best)


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


_LEAST_SHARE = 1e-3


class LayerLosses:
    """Acceptance lost by skipping layers, whatever else a recipe changes.

    A loss is the negative logarithm of the remaining acceptance. A tried run of layers has its
    measured one; any other the least sum of tried runs that compose it, as losses are nearly
    additive: of the bundled model's runs of two to eight layers half lose within 40 % of the sum
    for single layers, and of sets of separate layers nearly all within 30 %.
    """

    def __init__(self, n_layers: int) -> None:
        self._tried = np.full((n_layers, n_layers), np.inf)
        self._parts = self._tried.copy()

    def learn(self, skipped: Skipped, share: float) -> None:
        """Record the acceptance without some layers, relative to that with all."""
        run, *others = runs(skipped)
        if not others:
            self._tried[run] = max(-math.log(max(share, _LEAST_SHARE)), 0.0)
            self._parts = _cheapest_parts(self._tried)

    def share(self, skipped: Skipped) -> float:
        """Hoped for remaining acceptance, relative; 0.0 with a layer never tried."""
        return math.exp(-_HOPE * sum(float(self._parts[run]) for run in runs(skipped)))

    def every_run(self) -> Iterator[Skipped]:
        """Runs that keep at least one layer."""
        n_layers = len(self._tried)
        for first in range(n_layers):
            for last in range(first, n_layers - (first == 0)):
                yield tuple(range(first, last + 1))


def _cheapest_parts(tried: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least sum of tried runs that compose each run, shape (n_layers, n_layers)."""
    count = len(tried)
    parts = tried.copy()
    for length in range(2, count + 1):
        for first in range(count - length + 1):
            last = first + length - 1
            if np.isinf(parts[first, last]):
                cut = parts[first, first:last] + parts[first + 1 : last + 1, last]
                parts[first, last] = cut.min()
    return parts


_HOPE = 0.5
"""Optimistic factor on estimated losses of untried sets, so that the search explores."""

_MOST = 40
"""Most tries with the layers of one body, beyond one for each layer."""

_REPRESENTATIVE = 0.5
"""Least acceptance of a body for its layer losses to represent the target's."""

OWN = Recipe()
"""The target's own body: everything is accepted, and a token costs a plain step."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Measurements of a recipe. draw_cost: of a draft token, in plain steps."""

    acceptance: float
    draw_cost: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """Tried recipe with its speedup, predicted from acceptance and fitted_cost.

    fitted_cost: of a draft token in plain steps, smoothed over all recipes.
    """

    recipe: Recipe
    tried: Tried
    fitted_cost: float
    speedup: float


class RecipeSearch:
    """Proposes recipes to try, and ranks the tried ones.

    Bodies are recipes that skip no layer: each quantization, fewer experts. First each layer of a
    fast body is skipped alone; then sets of layers are tried in the order of predicted speedup,
    from the losses of layers and the cost of one, until none is predicted to be the best.

    bodies: to try, besides the target's own. speedup: predicted from an acceptance and a cost.
    can_skip: whether the remaining layers would be unchanged.
    """

    def __init__(
        self,
        n_layers: int,
        bodies: Sequence[Recipe],
        speedup: Callable[[float, float], float],
        can_skip: Callable[[Skipped], bool] = lambda _skipped: True,
    ) -> None:
        self._n_layers = n_layers
        self._can_skip = can_skip
        self._together = _together(n_layers, can_skip)
        self._bodies = list(bodies)
        self._speedup = speedup
        self._losses = LayerLosses(n_layers)
        self._tried: dict[Recipe, Tried] = {OWN: Tried(1.0, 1.0)}
        self._failed: set[Recipe] = set()

    def recipes(self) -> Iterator[Recipe]:
        """Recipes to try; call learn or fail for each before taking the next."""
        for recipe in self._proposed():
            if recipe not in self._tried and recipe not in self._failed:
                yield recipe

    def _proposed(self) -> Iterator[Recipe]:
        yield from self._bodies
        yield from self._joined()
        bodies = self._best_first(self._tried)
        if self._together:
            quickest = min(
                (one for one in bodies if self._tried[one].acceptance >= _REPRESENTATIVE),
                key=lambda body: self._tried[body].draw_cost,
            )
            yield from (replace(quickest, skipped_layers=layers) for layers in self._first_looks())
            for body in bodies:
                yield from self._explored(body)

    def learn(self, recipe: Recipe, tried: Tried) -> None:
        self._tried[recipe] = tried
        whole = self._tried[recipe.body].acceptance
        if recipe.skipped_layers and whole > 0.0:
            self._losses.learn(recipe.skipped_layers, tried.acceptance / whole)

    def fail(self, recipe: Recipe) -> None:
        self._failed.add(recipe)

    @property
    def ranking(self) -> list[Ranked]:
        costs = self._costs()
        ranked: list[Ranked] = []
        for recipe, tried in self._tried.items():
            if recipe != OWN:
                cost = costs(recipe)
                ranked.append(Ranked(recipe, tried, cost, self._speedup(tried.acceptance, cost)))
        return sorted(ranked, key=lambda each: each.speedup, reverse=True)

    def _joined(self) -> Iterator[Recipe]:
        bodies = self._best_first(self._tried)
        fewer_bits = next((body for body in bodies if body.quantization), None)
        fewer_experts = next((body for body in bodies if body.experts), None)
        if fewer_bits and fewer_experts:
            yield replace(fewer_bits, experts=fewer_experts.experts)

    def _first_looks(self) -> Iterator[Skipped]:
        """Each layer alone, and half of the layers in two ways, which shows the cost of a layer.

        One of the two is early exit. Layers that can only be skipped together are.
        """
        step = self._together
        half = max(self._n_layers // 2 // step, 1) * step
        quarter = self._n_layers // 4
        yield tuple(range(quarter, quarter + half))
        for layer in range(0, self._n_layers - step + 1, step):
            if self._cannot_skip:
                return
            yield tuple(range(layer, layer + step))
        yield tuple(range(self._n_layers - half, self._n_layers))

    @property
    def _cannot_skip(self) -> bool:
        failed = any(recipe.skipped_layers for recipe in self._failed)
        return failed and not any(recipe.skipped_layers for recipe in self._tried)

    def _explored(self, body: Recipe) -> Iterator[Recipe]:
        """Sets of layers that would be the best if they lose far less than their parts.

        All runs where they are few.
        """
        has_few = self._n_layers * (self._n_layers + 1) // 2 <= _MOST
        for _ in range(_MOST):
            sets = (*self._losses.every_run(), *self._neighbours(body))
            candidate = self._most_promising(body, sets)
            if candidate is None or (candidate[0] <= self._best and not has_few):
                return
            yield candidate[1]

    @property
    def _best(self) -> float:
        return max((each.speedup for each in self.ranking), default=0.0)

    def _most_promising(self, body: Recipe, sets: Iterable[Skipped]) -> tuple[float, Recipe] | None:
        """Untried recipe of a body with the highest predicted speedup, and that speedup."""
        if self._cannot_skip:
            return None
        costs, whole = self._costs(), self._tried[body].acceptance
        best: tuple[float, Recipe] | None = None
        for skipped in sets:
            recipe = replace(body, skipped_layers=skipped)
            if recipe in self._tried or recipe in self._failed or not self._can_skip(skipped):
                continue
            share = whole * self._losses.share(skipped)
            speedup = self._speedup(share, costs(recipe))
            if best is None or speedup > best[0]:
                best = speedup, recipe
        return best

    def _neighbours(self, body: Recipe) -> Iterator[Skipped]:
        """Best set of a body with one layer more or less."""
        tried = [each for each in self._tried if each.body == body and each.skipped_layers]
        if not tried:
            return
        best = set(self._best_first(tried)[0].skipped_layers)
        for layer in range(self._n_layers):
            changed = best ^ {layer}
            if 0 < len(changed) < self._n_layers:
                yield tuple(sorted(changed))

    def _best_first(self, recipes: Iterable[Recipe]) -> list[Recipe]:
        costs = self._costs()

        def speedup(recipe: Recipe) -> float:
            return self._speedup(self._tried[recipe].acceptance, costs(recipe))

        return sorted(recipes, key=speedup, reverse=True)

    def _costs(self) -> Callable[[Recipe], float]:
        """Costs of a draft token: one for each body, less one share of it for each skipped layer.

        Medians of what was measured, as other load may have slowed single passes. The share, at
        most a layer's of all, is told by recipes that skip many layers.
        """
        most, shares = 1.0 / self._n_layers, list[float]()
        wholes: dict[Recipe, list[float]] = {}
        for recipe, tried in self._tried.items():
            skipped = len(recipe.skipped_layers)
            if 3 * skipped >= self._n_layers:
                kept = tried.draw_cost / self._tried[recipe.body].draw_cost
                shares.append((1.0 - kept) / skipped)
        share = min(max(statistics.median(shares), 0.0), most) if shares else most
        for recipe, tried in self._tried.items():
            kept = 1.0 - share * len(recipe.skipped_layers)
            wholes.setdefault(recipe.body, []).append(tried.draw_cost / kept)
        costs = {body: statistics.median(found) for body, found in wholes.items()}
        return lambda recipe: costs[recipe.body] * (1.0 - share * len(recipe.skipped_layers))


def _together(n_layers: int, can_skip: Callable[[Skipped], bool]) -> int:
    """Smallest number of consecutive layers that can be skipped anywhere, 0 if none can."""
    for count in range(1, n_layers // 2 + 1):
        firsts = range(0, n_layers - count, count)
        if all(can_skip(tuple(range(first, first + count))) for first in firsts):
            return count
    return 0
