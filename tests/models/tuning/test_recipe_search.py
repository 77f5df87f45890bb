"""The search for a recipe, on models whose losses are known: what it finds, and how quickly."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from backends.base import ModelInfo, Rollback
from decoding.estimation.cost import CostModel, Measured
from decoding.planning.draft_length import predicted_speedup
from models.self_draft.recipe import Recipe, Skipped, runs
from models.tuning.recipe_search import Ranked, RecipeSearch, Tried, bodies, prospect

Judge = Callable[[Recipe], Tried | None]
CURVES = {
    "steep": CostModel(Measured({1: 1.0, 2: 1.9, 4: 2.6, 8: 4.2, 16: 5.7})),
    "flat": CostModel(Measured({1: 1.0, 16: 1.1})),
}
FEWER_BITS = Recipe("q4_0")
HEAD = 0.2
"""The share of a pass that no layer takes."""


def speedup(acceptance: float, cost: float, curve: str = "flat") -> float:
    return predicted_speedup(lambda _: acceptance, CURVES[curve], cost)


def searched(
    n_layers: int, bodies: list[Recipe], judge: Judge, curve: str = "flat"
) -> tuple[list[Ranked], list[Recipe]]:
    """The ranking, and what was tried in order."""
    search = RecipeSearch(n_layers, bodies, lambda share, cost: speedup(share, cost, curve))
    order: list[Recipe] = []
    for recipe in search.recipes():
        order.append(recipe)
        found = judge(recipe)
        if found is None:
            search.fail(recipe)
        else:
            search.learn(recipe, found)
    assert len(set(order)) == len(order)
    return search.ranking, order


def random_model(seed: int, n_layers: int, quality: float, noise: float = 0.0) -> Judge:
    """Layers lose little or much; runs lose up to twice or half of what their layers do."""
    random = np.random.default_rng(seed)
    single = random.exponential(0.3 * quality, n_layers)
    single[[0, -1]] = 3.0
    joined = random.uniform(0.5, 1.7, (n_layers, n_layers))

    def judge(recipe: Recipe) -> Tried:
        loss = 0.0 if recipe.quantization is None else 0.25
        for first, last in runs(recipe.skipped_layers):
            factor = joined[first, last] if last > first else 1.0
            loss += factor * single[first : last + 1].sum()
        whole = 1.0 if recipe.quantization is None else 0.6
        cost = whole * (1.0 - (1.0 - HEAD) * len(recipe.skipped_layers) / n_layers)
        return Tried(math.exp(-loss), cost * random.uniform(1.0 - noise, 1.0 + noise))

    return judge


def best_run(n_layers: int, judge: Judge, curve: str) -> float:
    """The highest predicted speedup of all single and contiguous skips, with and without bits."""
    found: list[float] = []
    for body in (Recipe(), FEWER_BITS):
        for first in range(n_layers):
            for last in range(first, n_layers - (first == 0)):
                tried = judge(Recipe(body.quantization, tuple(range(first, last + 1))))
                assert tried is not None
                found.append(speedup(tried.acceptance, tried.draw_cost, curve))
    return max(found)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("quality", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("n_layers", [2, 4, 7, 16])
def test_it_finds_what_is_as_good_as_the_best_run(
    n_layers: int, quality: float, curve: str
) -> None:
    for seed in range(2):
        judge = random_model(seed, n_layers, quality)
        ranking, order = searched(n_layers, [FEWER_BITS], judge, curve)
        assert ranking[0].speedup >= best_run(n_layers, judge, curve) - 1e-9
        assert len(order) <= 2 * (n_layers + 40) + n_layers + 2


def test_a_search_that_only_tries_single_layers_would_not() -> None:
    judge = random_model(0, 16, 0.1)
    ranking, _ = searched(16, [FEWER_BITS], judge)
    singles = [one for one in ranking if len(one.recipe.skipped_layers) == 1]
    assert max(one.speedup for one in singles) < best_run(16, judge, "flat")


def test_a_poor_clock_does_not_mislead_it() -> None:
    for seed in range(4):
        judge = random_model(seed, 12, 0.2, noise=0.05)
        ranking, _ = searched(12, [FEWER_BITS], judge)
        exact = random_model(seed, 12, 0.2)
        found = exact(ranking[0].recipe)
        assert found is not None
        assert speedup(found.acceptance, found.draw_cost) >= 0.99 * best_run(12, exact, "flat")


def test_where_nothing_comes_near_only_single_layers_are_tried() -> None:
    def judge(recipe: Recipe) -> Tried:
        left = math.exp(-2.0 * len(recipe.skipped_layers))
        return Tried((1.0 if recipe.quantization is None else 0.9) * left, 0.5)

    ranking, order = searched(10, [FEWER_BITS], judge, "steep")
    assert ranking[0].recipe == FEWER_BITS
    assert len(order) <= 1 + 1 + 10 + 2


def test_layers_that_cannot_be_skipped_are_asked_for_once() -> None:
    def judge(recipe: Recipe) -> Tried | None:
        return None if recipe.skipped_layers else Tried(0.9, 0.5)

    ranking, order = searched(8, [FEWER_BITS], judge)
    assert [one.recipe for one in ranking] == [FEWER_BITS]
    assert len([one for one in order if one.skipped_layers]) == 1


def test_fewer_bits_and_fewer_experts_are_tried_together() -> None:
    def judge(recipe: Recipe) -> Tried:
        cost = (0.6 if recipe.quantization else 1.0) * (0.5 if recipe.experts else 1.0)
        return Tried(0.1 if recipe.skipped_layers else 0.9, cost)

    ranking, _ = searched(4, [FEWER_BITS, Recipe(experts=1)], judge)
    assert ranking[0].recipe == Recipe("q4_0", experts=1)


def test_a_copy_that_cannot_be_made_is_left_out() -> None:
    def judge(recipe: Recipe) -> Tried | None:
        return None if recipe.quantization else random_model(1, 6, 0.2)(recipe)

    ranking, _ = searched(6, [FEWER_BITS], judge)
    assert ranking
    assert all(one.recipe.quantization is None for one in ranking)


def test_the_cost_of_a_layer_is_evened_out() -> None:
    judge = random_model(2, 20, 0.3, noise=0.1)
    ranking, _ = searched(20, [], judge)
    for one in ranking:
        exact = 1.0 - (1.0 - HEAD) * len(one.recipe.skipped_layers) / 20
        assert one.fitted_cost == pytest.approx(exact, abs=0.1)


def test_a_model_of_one_layer_has_copies_only() -> None:
    ranking, order = searched(1, [FEWER_BITS], lambda recipe: Tried(0.9, 0.5))
    assert order == [FEWER_BITS] == [one.recipe for one in ranking]


def test_only_what_can_be_skipped_is_tried() -> None:
    def can_skip(skipped: Skipped) -> bool:
        return all(
            sum(one < layer for one in skipped) % 4 == 0 for layer in set(range(16)) - set(skipped)
        )

    judge = random_model(3, 16, 0.1)
    search = RecipeSearch(16, [FEWER_BITS], speedup, can_skip)
    for recipe in search.recipes():
        assert can_skip(recipe.skipped_layers), recipe.text
        found = judge(recipe)
        assert found is not None
        search.learn(recipe, found)
    tried = {one.recipe.skipped_layers for one in search.ranking}
    assert {(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)} <= tried
    assert search.ranking[0].recipe.skipped_layers


def test_where_no_layer_can_be_skipped_copies_alone_are_tried() -> None:
    search = RecipeSearch(8, [FEWER_BITS], speedup, lambda skipped: not skipped)
    assert list(search.recipes()) == [FEWER_BITS]


@pytest.mark.parametrize(
    ("layers", "found"),
    [((), []), ((3,), [(3, 3)]), ((0, 1, 2), [(0, 2)]), ((0, 2, 3, 7), [(0, 0), (2, 3), (7, 7)])],
)
def test_runs_are_consecutive_layers(layers: tuple[int, ...], found: list[tuple[int, int]]) -> None:
    assert runs(layers) == found


def info(
    quantization: str, bits: float, *, on: str = "Metal", backend: str = "llamacpp"
) -> ModelInfo:
    """A model of 8 billion weights with 32 layers."""
    size = round(8e9 * bits / 8)
    return ModelInfo(
        path=Path("model"), name="model", architecture="llama", quantization=quantization,
        parameters=8_000_000_000, weight_bytes=size, bytes_read_per_token=size, n_vocab=128_000,
        n_layers=32, context_limit=8192, rollback=Rollback.ANY, backend=backend,
        engine="none", device=on, threads=8,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "recipe"),
    [
        (info("F16", 16.0), "q4_0"),
        (info("Q8_0", 8.5), "q4_0"),
        (info("Q4_1", 5.1, on="CPU: some"), "q4_0"),
        (info("float16", 16.0, backend="mlx"), "q4_0"),
        (info("8-bit", 8.5, backend="mlx"), "q4_0"),
    ],
)
def test_many_bits_can_be_fewer(target: ModelInfo, recipe: str) -> None:
    found = prospect(target)
    assert found.recipe == Recipe(recipe)
    assert found.can_pay
    assert found.draw_cost < 0.6


@pytest.mark.parametrize(
    ("target", "recipe"),
    [
        (info("Q4_K_M", 4.9), Recipe("q4_0")),
        (info("Q4_K_M", 4.9, on="CPU: some"), Recipe("q4_0")),
        (info("Q4_0", 4.6), Recipe("q3_k_m")),
        (info("Q2_K", 3.2), Recipe("q2_k")),
        (info("4-bit", 4.5, backend="mlx"), Recipe(None, (14, 15, 16, 17))),
    ],
)
def test_of_few_bits_none_can_pay(target: ModelInfo, recipe: Recipe) -> None:
    found = prospect(target)
    assert found.recipe == recipe
    assert not found.can_pay
    assert found.best <= 1.0


def test_it_is_the_best_of_what_is_tuned_over() -> None:
    target = info("Q6_K", 6.6)
    assert prospect(target).recipe in bodies(target)
