"""Self-drafters made of loaded weights: room, keys, and what auto makes of what it remembers."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("mlx.core", reason="MLX is not installed")

from app.drafting import self_drafter
from app.drafting.choose.automatic import promising
from app.drafting.choose.candidates import candidates
from app.drafting.choose.drafter_info import Kind, Target
from app.engine.session_drafters import Drafting
from app.learned.acceptance_memory import AcceptanceMemory
from app.loading.checked_loader import CheckedLoader
from app.loading.placement import MemoryPlan
from app.paths import Paths
from backends import mlx
from backends.base import Context, Model, UsageError
from decoding.estimation.acceptance import Acceptance
from decoding.generation import Limits, always, generate
from decoding.sampling.distribution import SamplingSettings
from models.metadata.identity import fingerprint
from models.metadata.memory_bill import bill, facts_of
from models.reference import Reference
from models.self_draft.recipe import Recipe
from models.tuning.recipe_search import prospect
from tests.fixtures.knowing import PLANNED, drafters, knowledge

GREEDY = SamplingSettings(temperature=0.0)
LIMITS = Limits(24, frozenset())


@pytest.fixture
def target(small_mlx: Callable[..., Path]) -> Iterator[Model]:
    with closing(mlx.load(small_mlx("plain"))) as model:
        yield model


@pytest.fixture
def context(target: Model) -> Context:
    return target.open(256)


def built(spec: str, target: Model, context: Context, paths: Paths, room: int | None) -> Drafting:
    return drafters(spec, target, context, paths, room)


@pytest.mark.usefixtures("drafting_pays")
def test_a_view_fits_where_a_copy_does_not(target: Model, context: Context, paths: Paths):
    info = target.info
    copy, view = Recipe.parse("q8_0"), Recipe.parse("skip=0")
    assert self_drafter.added_bytes(info, view) == 0
    room = bill(self_drafter.facts(info, view), context.n_ctx).total
    with closing(built("self:skip=0", target, context, paths, None)) as drafting:
        assert drafting.drafter_bytes == 0
        assert drafting.kv_bytes > 0
    assert self_drafter.added_bytes(info, copy) > 100_000
    with closing(built("self:q8_0", target, context, paths, room)) as drafting:
        assert drafting.handles == ()
        assert "memory is short" in drafting.missing
    with closing(built("self:skip=0", target, context, paths, room)) as drafting:
        assert drafting.missing == ""


@pytest.mark.usefixtures("drafting_pays")
def test_each_recipe_is_remembered_by_itself(target: Model, context: Context, paths: Paths):
    keys: set[str] = set()
    for spec in ("self:q8_0", "self:q4_0", "self:skip=0"):
        with closing(built(spec, target, context, paths, None)) as drafting:
            keys |= {one.key for one in drafting.handles if not one.member.lines}
            controller = drafting.controller
            assert controller is not None
            for _ in generate(context, [40, 41], GREEDY, LIMITS, drafters=always(controller)):
                pass
            drafting.remember()
    memory = AcceptanceMemory(target.info.path, paths)
    recipes = [Recipe.parse(text) for text in ("q8_0", "q4_0", "skip=0")]
    assert keys == {fingerprint(target.info.path, recipe.slug) for recipe in recipes}
    assert all(memory.recall(key).counts() for key in keys)
    assert memory.known_drafters() == []  # there is no file that could be loaded


@pytest.mark.slow
def test_layers_that_are_not_there_are_refused(target: Model, context: Context, paths: Paths):
    with pytest.raises(UsageError, match="layer 7 cannot be skipped"):
        built("self:skip=7", target, context, paths, None)


@pytest.mark.slow
def test_fewer_bits_than_there_are_must_be_asked_for(target: Model, context: Context, paths: Paths):
    models = CheckedLoader(paths, lambda text: None)
    made = self_drafter.made(target, Recipe("q4_0"), None, None, models)
    with closing(made), closing(made.open(256)) as its_context:
        drafting = drafters("self:q8_0", made, its_context, paths)
        assert "no copy in 8 bits" in drafting.missing


def test_auto_takes_it_until_it_is_known_not_to_pay(target: Model, paths: Paths):
    (found,) = promising(knowledge(target, paths), paths, PLANNED)
    recipe = prospect(target.info).recipe
    assert found.recipe == recipe
    no_room = MemoryPlan(256, 256, 0)
    assert list(promising(knowledge(target, paths), paths, no_room)) == []
    memory = AcceptanceMemory(target.info.path, paths)
    key = fingerprint(target.info.path, recipe.slug)
    memory.remember(key, Acceptance({"1:drawn": (1.0, 50.0)}), {})
    memory.save()
    assert list(promising(knowledge(target, paths), paths, PLANNED)) == []


def test_it_is_listed_beside_other_drafters(target: Model, paths: Paths):
    path = target.info.path
    listed = Target(Reference("small", path), facts_of(path), target)
    (own,) = [
        one
        for one in candidates(listed, CheckedLoader(paths, lambda text: None), None)
        if one.kind is Kind.SELF
    ]
    assert own.is_compatible
    assert own.variant == prospect(target.info).recipe.slug
    assert own.read_bytes is not None
    assert own.read_bytes < target.info.bytes_read_per_token
