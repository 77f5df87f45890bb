"""The recipe to begin with: what it is for models in how many bits, and where none can pay."""

from pathlib import Path

import pytest

from backends.base import ModelInfo, Rollback
from models.self_draft.recipe import Recipe
from models.tuning.recipe_gain import bodies, prospect


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
