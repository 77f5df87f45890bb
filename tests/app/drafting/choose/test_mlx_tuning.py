"""Tuning a small model of MLX: what is found and remembered, and what `self` then means."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from app.cli.commands.tune import verdict
from app.drafting.choose.automatic import promising
from app.drafting.choose.candidates import candidates
from app.drafting.choose.drafter_info import Kind, Target
from app.drafting.choose.tuning import Tuning, TuningResult
from app.learned.tuned_recipe import (
    Tuned,
    own_recipe,
    remember,
    set_aside_unusable,
    tuned,
    tuned_file,
)
from app.loading.checked_loader import CheckedLoader
from app.paths import Paths
from backends import mlx
from backends.base import DiskFullError, DraftUnavailableError, Model, Rollback
from backends.engines.model_loading import derive
from decoding.checks.agreement import Agreement, spoken
from decoding.estimation.cost import CostModel, Measured
from decoding.generation import Limits
from decoding.planning.draft_length import predicted_speedup
from decoding.sampling.distribution import SamplingSettings
from models.metadata.identity import fingerprint
from models.metadata.memory_bill import facts_of
from models.reference import Reference
from models.self_draft.recipe import Recipe
from models.tuning.recipe_search import Ranked, RecipeSearch, Tried, prospect
from tests.fixtures.knowing import PLANNED, drafters, knowledge

FLAT = CostModel(Measured({1: 0.02, 16: 0.022}))
LAYERS = 3


@pytest.fixture
def target(small_mlx: Callable[..., Path]) -> Iterator[Model]:
    with closing(mlx.load(small_mlx("plain", num_hidden_layers=LAYERS))) as model:
        yield model


def tune(target: Model, paths: Paths, told: list[str], stop_after: int = 1000) -> TuningResult:
    """Tune, and be interrupted when so many recipes were measured."""

    def notify(text: str) -> None:
        told.append(text)
        if sum(text.startswith("recipe ") for text in told) > stop_after:
            raise KeyboardInterrupt

    return Tuning(target, paths, None, notify, told.append).run()


def measured(told: list[str]) -> list[str]:
    """The recipes that were measured, in order."""
    words = [text.split(": ")[1] for text in told if text.startswith("recipe ")]
    return [text.split(";")[0] for text in words]


@pytest.mark.usefixtures("drafting_pays")
def test_what_it_finds_is_what_self_means(target: Model, paths: Paths) -> None:
    info, told = target.info, []
    assert own_recipe(info, paths) == prospect(info).recipe
    found = tune(target, paths, told)
    assert [one.speedup for one in found.ranking] == sorted(
        (one.speedup for one in found.ranking), reverse=True
    )
    assert sorted(one.recipe.text for one in found.ranking) == sorted(measured(told))
    assert {"q8_0", "q4_0", "skip=0"} <= {text.split("+")[-1] for text in measured(told)}
    known = tuned(info, paths)
    assert known is not None
    assert known.recipe == own_recipe(info, paths) == found.best.recipe
    assert known.acceptance == found.best.tried.acceptance
    assert not list(paths.tuning.iterdir())
    with closing(target.open(256)) as context:
        with closing(drafters("self", target, context, paths)) as drafting:
            key = fingerprint(info.path, known.recipe.slug)
            assert [one.key for one in drafting.handles] == [key]
        with closing(drafters("self:q4_0", target, context, paths)) as drafting:
            assert drafting.handles[0].key == fingerprint(info.path, Recipe("q4_0").slug)
    listed = Target(Reference("small", info.path), facts_of(info.path), target)
    models = CheckedLoader(paths, lambda text: None)
    (own,) = [one for one in candidates(listed, models, None) if one.kind is Kind.SELF]
    assert known.recipe.text in own.why
    assert "tuning" in own.why


@pytest.mark.usefixtures("drafting_pays")
def test_stopped_and_started_again_it_goes_on(target: Model, paths: Paths) -> None:
    first: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        tune(target, paths, first, stop_after=5)
    assert tuned(target.info, paths) is None
    second: list[str] = []
    found = tune(target, paths, second)
    assert len(measured(first)[:5]) == 5
    assert not set(measured(first)[:5]) & set(measured(second))
    assert not any("says something" in text for text in second)
    assert set(measured(first)[:5]) <= {one.recipe.text for one in found.ranking}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text[: len(text) // 2], 1),
        (lambda text: json.dumps(json.loads(text) | {"schema": 2}), 1),
        (lambda text: json.dumps(json.loads(text) | {"key": "another model"}), 1),
        (lambda text: json.dumps(json.loads(text) | {"recipe": "skip=99"}), 1),
        (lambda text: json.dumps(json.loads(text) | {"acceptance": 7}), 1),
        (lambda text: text, 0),
    ],
)
def test_what_cannot_be_used_is_set_aside_and_said_once(
    change: Callable[[str], str], told: int, target: Model, paths: Paths
) -> None:
    file = tuned_file(target.info, paths)
    file.parent.mkdir(parents=True)
    kept = {"schema": 1, "key": file.stem, "recipe": "skip=1", "acceptance": 0.5, "draw_cost": 0.3}
    file.write_text(change(json.dumps(kept)))
    said: list[str] = []
    for _ in range(2):
        set_aside_unusable(target.info, paths, said.append)
    assert len(said) == told
    assert (tuned(target.info, paths) is None) is bool(told)
    if told:
        assert own_recipe(target.info, paths) == prospect(target.info).recipe
        assert len(list(paths.recipes.iterdir())) == 1


def test_a_recipe_that_cannot_be_kept_is_an_error(target: Model, paths: Paths) -> None:
    paths.data.mkdir(parents=True)
    paths.recipes.touch()  # a file where the folder is to be
    with pytest.raises(DiskFullError, match="cannot be saved"):
        remember(Tuned(Recipe("q4_0"), 0.5, 0.5), target.info, paths)
    paths.recipes.unlink()
    remember(Tuned(Recipe("q4_0"), 0.5, 0.5), target.info, paths)
    assert own_recipe(target.info, paths) == Recipe("q4_0")


def test_auto_believes_what_tuning_measured(target: Model, paths: Paths) -> None:
    file = tuned_file(target.info, paths)
    file.parent.mkdir(parents=True)
    key = file.stem
    for acceptance, wanted in ((0.95, 1), (0.05, 0)):
        kept = {"schema": 1, "key": key, "recipe": "skip=1", "acceptance": acceptance}
        file.write_text(json.dumps(kept | {"draw_cost": 0.3}))
        found = list(promising(knowledge(target, paths), paths, PLANNED))
        assert [one.name for one in found] == ["self"] * wanted


def test_a_model_that_cannot_be_drafted_for_is_refused(
    small_mlx: Callable[..., Path], paths: Paths
) -> None:
    with closing(mlx.load(small_mlx("plain"))) as model:
        model.info = replace(model.info, rollback=Rollback.NONE)
        with pytest.raises(DraftUnavailableError, match="cannot be drafted for"):
            tune(model, paths, [])


def test_a_model_with_a_running_state_is_tuned(
    small_mlx: Callable[..., Path], paths: Paths
) -> None:
    with closing(mlx.load(small_mlx("hybrid"))) as model:
        assert tune(model, paths, []).ranking


def test_fewer_experts_are_tried(small_mlx: Callable[..., Path], paths: Paths) -> None:
    with closing(mlx.load(small_mlx("experts"))) as model:
        found = tune(model, paths, [])
    assert any(one.recipe == Recipe(experts=1) for one in found.ranking)
    assert any(one.recipe.experts and one.recipe.quantization for one in found.ranking)


@pytest.mark.parametrize(("seed", "layers"), [(0, 4), (1, 6)])
def test_nothing_single_or_contiguous_is_better(
    seed: int, layers: int, small_mlx: Callable[..., Path]
) -> None:
    """Acceptances as measured on the model, costs by layers kept, so that both judge alike."""
    settings = SamplingSettings(temperature=0.8, seed=1)
    with (
        closing(mlx.load(small_mlx("plain", seed, num_hidden_layers=layers))) as model,
        closing(model.open(128)) as context,
    ):
        limits = Limits(24, frozenset())
        said = [spoken(context, [20 + one, 30, 40], settings, limits) for one in range(2)]
        agreement = Agreement(context, said, model.info.n_vocab, settings)
        judged: dict[Recipe, Tried] = {}

        def judge(recipe: Recipe) -> Tried:
            if recipe not in judged:
                made = derive(model, recipe.slug, recipe.bits, recipe.skipped_layers)
                with closing(made), closing(made.open(128)) as its_context:
                    kept = 1.0 - len(recipe.skipped_layers) / layers
                    cost = (0.5 if recipe.bits else 1.0) * (0.1 + 0.9 * kept)
                    judged[recipe] = Tried(agreement.acceptance(its_context), cost)
            return judged[recipe]

        def speedup(acceptance: float, cost: float) -> float:
            return predicted_speedup(lambda _: acceptance, FLAT, cost)

        search = RecipeSearch(layers, [Recipe("q4_0")], speedup)
        for recipe in search.recipes():
            search.learn(recipe, judge(recipe))
        best = search.ranking[0]
        for quantization in (None, "q4_0"):
            for first in range(layers):
                for last in range(first, layers - (first == 0)):
                    run = judge(Recipe(quantization, tuple(range(first, last + 1))))
                    assert best.speedup >= speedup(run.acceptance, run.draw_cost) - 1e-9


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_the_command_prints_what_was_tried(
    target: Model, specchat: Callable[..., CompletedProcess[str]]
) -> None:
    path = str(target.info.path)
    ended = specchat("--backend", "mlx", "models", "tune", path, "--json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["schema"] == 1
    best = max(found["tried"], key=lambda one: one["predicted_speedup"])
    assert found["recipe"] == best["recipe"] == found["tried"][0]["recipe"]
    assert found["pays"] is (best["predicted_speedup"] > 1.0)
    shown = specchat("--backend", "mlx", "models", "tune", path).stdout
    assert "predicted speedup" in shown
    assert "skip=0 " in shown
    paired = specchat("--backend", "mlx", "models", "pair", path).stdout
    assert "as tuning found" in " ".join(paired.split()), "wrapped anywhere, as figures differ"


def test_it_says_so_where_no_recipe_pays() -> None:
    best = Ranked(Recipe("q4_0"), Tried(0.7, 0.5), 0.5, 0.8)
    told = verdict(TuningResult("model", 0.01, (best,), {}, 0.93))
    assert told.startswith("No recipe pays here; best is q4_0 (0.80× plain predicted)")
    assert "acceptance is 70 %, break-even is 93 %" in told
    hopeless = verdict(TuningResult("model", 0.01, (best,), {}, float("inf")))
    assert "even at 100 % acceptance" in hopeless
