"""Which recipe makes the fastest self-drafter, of those whose acceptance and cost are measured.

Bodies are recipes that skip no layer: each quantization, fewer experts. The layers of a quick one
are left out one by one; what more to skip is then what the losses of layers and the cost of one
say, tried in the order of predicted speedup until nothing is predicted to come near the best.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from models.self_draft.recipe import Recipe, Skipped
from models.tuning.layer_cost import CostLine
from models.tuning.layer_losses import LayerLosses

_NEAR = 0.98
"""Of the best speedup, from which on a guess is worth a try."""

_HOPE, _GREAT_HOPE = 0.85, 0.5
"""Of its guessed loss what was not tried is taken to have: a search must look further."""

_PATIENCE = 10
"""Tries in a row that bring nothing better."""

_MOST = 40
"""Tries with the layers of one body, beyond one for each layer."""

_TELLING = 0.5
"""Acceptance of a body, from which on it is like the target."""

OWN = Recipe()
"""The target's own body: all that it says is accepted, and a token costs a plain step."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What was measured of a recipe. draw_cost: of one of its tokens, in plain steps."""

    acceptance: float
    draw_cost: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A recipe that was tried; speedup is predicted from acceptance and fitted_cost.

    fitted_cost: of a token in plain steps, evened out over all that was tried of the same body.
    """

    recipe: Recipe
    tried: Tried
    fitted_cost: float
    speedup: float


class RecipeSearch:
    """Says what to try next, and ranks what was tried.

    bodies: those to try, the target's own apart. speedup: predicted, of an acceptance and a cost.
    can_skip: whether the layers left would do what they did before.
    """

    def __init__(
        self,
        n_layers: int,
        bodies: Sequence[Recipe],
        speedup: Callable[[float, float], float],
        can_skip: Callable[[Skipped], bool] = lambda skipped: True,
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
        """What to try, one after another; learn or fail is called for each before the next."""
        for recipe in self._proposed():
            if recipe not in self._tried and recipe not in self._failed:
                yield recipe

    def _proposed(self) -> Iterator[Recipe]:
        yield from self._bodies
        yield from self._joined()
        bodies = sorted(self._tried, key=self._speedup_of, reverse=True)
        if self._together:
            quickest = min(
                filter(self._is_telling, bodies), key=lambda one: self._tried[one].draw_cost
            )
            yield from (replace(quickest, skipped_layers=one) for one in self._first_looks())
            best_copy = next((body for body in bodies if body != OWN), OWN)
            for body in bodies:
                yield from self._refined(body)
                yield from self._swept(body, is_thorough=body in (OWN, best_copy))

    def learn(self, recipe: Recipe, tried: Tried) -> None:
        """Take in what was measured."""
        self._tried[recipe] = tried
        whole = self._tried[recipe.body].acceptance
        if recipe.skipped_layers and whole > 0.0:
            self._losses.learn(recipe.skipped_layers, tried.acceptance / whole)

    def fail(self, recipe: Recipe) -> None:
        """It cannot be made here."""
        self._failed.add(recipe)

    @property
    def ranking(self) -> list[Ranked]:
        """All that was tried, the highest predicted speedup first."""
        lines = {body: self._line(body) for body in {one.body for one in self._tried}}
        found: list[Ranked] = []
        for recipe, tried in self._tried.items():
            if recipe != OWN:
                cost = lines[recipe.body].of(len(recipe.skipped_layers))
                found.append(Ranked(recipe, tried, cost, self._speedup(tried.acceptance, cost)))
        return sorted(found, key=lambda one: one.speedup, reverse=True)

    def _joined(self) -> Iterator[Recipe]:
        """The best quantization with the best number of experts."""
        bodies = sorted(self._tried, key=self._speedup_of, reverse=True)
        fewer_bits = next((body for body in bodies if body.quantization), None)
        fewer_experts = next((body for body in bodies if body.experts), None)
        if fewer_bits and fewer_experts:
            yield replace(fewer_bits, experts=fewer_experts.experts)

    def _is_telling(self, body: Recipe) -> bool:
        """Whether what it loses without a layer is likely what other bodies lose."""
        return self._tried[body].acceptance >= _TELLING

    def _first_looks(self) -> Iterator[Skipped]:
        """Each layer alone, and half of them in two ways: that tells what a layer costs.

        One of these ways is early exit. Where layers can only be skipped together, so they are.
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
        """Whether skipping was refused, and never done."""
        refused = any(one.skipped_layers for one in self._failed)
        return refused and not any(one.skipped_layers for one in self._tried)

    def _refined(self, body: Recipe) -> Iterator[Recipe]:
        """Sets of layers near the best, while some bring more."""
        idle = 0
        for _ in range(_MOST):
            best = self._best
            sets = (*self._losses.cheapest(), *self._losses.every_run(), *self._neighbours(body))
            found = self._most_promising(body, sets, _HOPE)
            if found is None or found[0] < _NEAR * best or idle == _PATIENCE:
                return
            yield found[1]
            idle = 0 if self._best > best else idle + 1

    def _swept(self, body: Recipe, *, is_thorough: bool) -> Iterator[Recipe]:
        """Runs of layers that are the best if they lose far less than their parts.

        is_thorough: all of them, where there are few.
        """
        has_few = self._n_layers * (self._n_layers + 1) // 2 <= _MOST
        for _ in range(_MOST if has_few else self._n_layers):
            found = self._most_promising(body, self._losses.every_run(), _GREAT_HOPE)
            if found is None or (found[0] <= self._best and not (has_few and is_thorough)):
                return
            yield found[1]

    @property
    def _best(self) -> float:
        return max((one.speedup for one in self.ranking), default=0.0)

    def _most_promising(
        self, body: Recipe, sets: Iterable[Skipped], hope: float
    ) -> tuple[float, Recipe] | None:
        """What was not tried of a body and is predicted to be the fastest, with its speedup."""
        if self._cannot_skip:
            return None
        line, whole = self._line(body), self._tried[body].acceptance
        best: tuple[float, Recipe] | None = None
        for skipped in sets:
            recipe = replace(body, skipped_layers=skipped)
            if recipe in self._tried or recipe in self._failed or not self._can_skip(skipped):
                continue
            share = whole * self._losses.share(skipped, hope)
            found = self._speedup(share, line.of(len(skipped)))
            if best is None or found > best[0]:
                best = found, recipe
        return best

    def _neighbours(self, body: Recipe) -> Iterator[Skipped]:
        """The best set of a body with one layer more or less."""
        found = [one for one in self._tried if one.body == body and one.skipped_layers]
        if not found:
            return
        best = set(max(found, key=self._speedup_of).skipped_layers)
        for layer in range(self._n_layers):
            changed = best ^ {layer}
            if 0 < len(changed) < self._n_layers:
                yield tuple(sorted(changed))

    def _speedup_of(self, recipe: Recipe) -> float:
        cost = self._line(recipe.body).of(len(recipe.skipped_layers))
        return self._speedup(self._tried[recipe].acceptance, cost)

    def _line(self, body: Recipe) -> CostLine:
        """What recipes of a body cost; its layers as another's until enough of them was tried."""
        found = self._own_line(body)
        if found is not None:
            return found
        others = filter(None, map(self._own_line, {one.body for one in self._tried}))
        layer = next((line.layer for line in others), 1.0 / self._n_layers)
        return CostLine(self._tried[body].draw_cost, layer)

    def _own_line(self, body: Recipe) -> CostLine | None:
        measured: dict[int, list[float]] = {}
        for recipe, tried in self._tried.items():
            if recipe.body == body:
                measured.setdefault(len(recipe.skipped_layers), []).append(tried.draw_cost)
        return CostLine.through(measured, self._n_layers)


def _together(n_layers: int, can_skip: Callable[[Skipped], bool]) -> int:
    """How many layers in a row can be skipped anywhere, at the least; 0 where none can."""
    for count in range(1, n_layers // 2 + 1):
        firsts = range(0, n_layers - count, count)
        if all(can_skip(tuple(range(first, first + count))) for first in firsts):
            return count
    return 0
