"""Recipes of self-drafters: what is written, what it means, and what a model cannot do."""

import pytest

from backends.base import UsageError
from models.self_draft.recipe import QUANTIZATIONS, Recipe


@pytest.mark.parametrize(
    ("text", "recipe"),
    [
        ("q4_0", Recipe("q4_0")),
        ("Q2_K", Recipe("q2_k")),
        ("skip=3", Recipe(None, (3,))),
        ("skip=12-15", Recipe(None, (12, 13, 14, 15))),
        ("q4_0+skip=1", Recipe("q4_0", (1,))),
        ("skip=5+q8_0+skip=1-2", Recipe("q8_0", (1, 2, 5))),
        ("skip=2-4+skip=3-5", Recipe(None, (2, 3, 4, 5))),
        ("experts=2", Recipe(None, (), 2)),
        ("skip=1+Experts=1+q8_0", Recipe("q8_0", (1,), 1)),
    ],
)
def test_a_recipe_is_read(text: str, recipe: Recipe) -> None:
    assert Recipe.parse(text) == recipe


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "''"),
        ("bogus", "'bogus'"),
        ("q4_0+", "''"),
        ("skip=", "'skip='"),
        ("skip=a", "'skip=a'"),
        ("skip=-1", "'skip=-1'"),
        ("skip=99999", "'skip=99999'"),
        ("skip=5-3", "3 comes before 5"),
        ("q4_0,q8_0", "'q4_0,q8_0'"),
        ("experts=", "'experts='"),
        ("experts=1+experts=2", "two numbers of experts"),
        ("q4_0+q8_0", "two quantizations"),
        ("skip=1+skip=5-3", "3 comes before 5"),
    ],
)
def test_what_is_no_recipe_is_told(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=r"self:") as refused:
        Recipe.parse(text)
    assert told in str(refused.value)


@pytest.mark.parametrize("text", ["q4_0", "skip=3", "q4_0+skip=0-2+skip=7+experts=1", "experts=3"])
def test_a_recipe_is_spelled_as_it_is_read(text: str) -> None:
    assert Recipe.parse(text).text == text


def test_every_recipe_has_a_file_name_of_its_own() -> None:
    texts = [*QUANTIZATIONS, "skip=1", "skip=11", "skip=1+skip=11", "skip=1-2", "q4_0+skip=1-2"]
    texts += ["experts=1", "experts=2", "q4_0+experts=1", "skip=1-2+experts=1"]
    slugs = {Recipe.parse(text).slug for text in texts}
    assert len(slugs) == len(texts)
    assert all(slug and "/" not in slug for slug in slugs)


def test_a_file_name_is_never_too_long() -> None:
    assert len(Recipe.parse("q4_0+skip=0-120").slug) < 200
    scattered = [Recipe("q4_0", tuple(range(start, 120, 2)), 1) for start in (0, 1)]
    assert len({recipe.slug for recipe in scattered}) == 2
    assert max(len(recipe.slug) for recipe in scattered) < 150


@pytest.mark.parametrize(("text", "bits"), [("q2_k", 2), ("q4_k_m+skip=1", 4), ("skip=1", None)])
def test_a_recipe_tells_its_bits(text: str, bits: int | None) -> None:
    assert Recipe.parse(text).bits == bits


@pytest.mark.parametrize("skipped", [(3,), (0, 7), (0, 1, 2)])
def test_layers_that_are_not_there_or_all_cannot_be_skipped(skipped: tuple[int, ...]) -> None:
    with pytest.raises(UsageError):
        Recipe(None, skipped).check("three", 3)


@pytest.mark.parametrize("skipped", [(), (0,), (1, 2)])
def test_layers_that_leave_some_can_be_skipped(skipped: tuple[int, ...]) -> None:
    Recipe("q4_0", skipped).check("three", 3)


@pytest.mark.parametrize(("active", "wanted"), [(0, 1), (2, 2), (2, 0), (4, 8)])
def test_experts_that_are_not_there_cannot_be_chosen(active: int, wanted: int) -> None:
    with pytest.raises(UsageError, match="experts"):
        Recipe(experts=wanted).check("model", 4, active)


@pytest.mark.parametrize("active", [4, None])
def test_fewer_experts_can_be_chosen(active: int | None) -> None:
    Recipe("q4_0", (1,), 3).check("model", 4, active)
