"""Sizes of self-drafters that are expected, against those that are made."""

from collections.abc import Callable
from pathlib import Path

import pytest

from models.metadata.memory_bill import facts_of
from models.self_draft.recipe import Recipe, kept_share, weights_made
from models.self_draft.self_draft_store import expected_bytes

TEXTS = ["q4_0+skip=1-28", "q2_k+skip=1-28", "q4_k_m+skip=1-28", "skip=1-28", "q4_k_m+skip=1-8"]
"""Of 30 layers; with two of them, most of the file is the embedding."""


@pytest.mark.slow
@pytest.mark.usefixtures("llamacpp")
@pytest.mark.parametrize("text", TEXTS)
def test_the_size_is_that_of_the_file(demo_file: Path, tmp_path: Path, text: str) -> None:
    from backends.llamacpp.requantize import requantize

    recipe, made = Recipe.parse(text), tmp_path / "made.gguf"
    for _ in requantize(demo_file, made, recipe.quantization, recipe.skipped_layers):
        pass
    weights = facts_of(made).weight_bytes
    assert weights_made(demo_file, recipe) == pytest.approx(weights, rel=0.03)
    assert expected_bytes(demo_file, recipe) == pytest.approx(made.stat().st_size, rel=0.03)


def test_without_changes_nothing_is_missing(demo_file: Path) -> None:
    assert weights_made(demo_file, Recipe()) == facts_of(demo_file).weight_bytes
    assert kept_share(demo_file, ()) == 1.0


def test_embeddings_stay_when_layers_go(demo_file: Path) -> None:
    assert 0.30 < kept_share(demo_file, range(30)) < 0.33


def test_embeddings_of_a_folder_stay_when_layers_go(small_mlx: Callable[..., Path]) -> None:
    folder = small_mlx("plain")
    assert 0.0 < kept_share(folder, range(100)) < kept_share(folder, (0,)) < 1.0
