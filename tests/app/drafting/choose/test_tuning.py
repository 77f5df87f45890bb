"""Tuning a model of llama.cpp: files come and go, and the winner's stays."""

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.knowing import drafters

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")


from app.drafting.choose.tuning import Tuning, TuningResult
from app.learned.tuned_recipe import Tuned, own_recipe, remember, set_aside_unusable, tuned
from app.paths import Paths
from backends import llamacpp
from backends.base import DiskFullError, DraftUnavailableError, Model
from backends.engines import model_loading
from decoding.checks.distribution_check import greedy_reply
from decoding.generation import Limits
from models.self_draft import self_draft_store
from models.self_draft.recipe import Recipe
from models.self_draft.self_draft_store import SelfDrafts
from tests.fixtures.first_hit import first_hit_of

TinyLlama = Callable[..., Path]


@pytest.fixture
def target(tiny_llama: TinyLlama) -> Iterator[Model]:
    with closing(llamacpp.load(tiny_llama(layers=1), threads=1)) as model:
        yield model


def tune(
    target: Model, paths: Paths, notify: Callable[[str], None] = lambda text: None
) -> TuningResult:
    return Tuning(target, paths, None, notify, lambda text: None).run()


def files(paths: Paths) -> list[Path]:
    return [path for path in paths.self_drafts.iterdir() if path.name != "hashes.json"]


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_candidates_get_memory_of_the_weights_of_a_model_that_streams(
    tiny_llama: TinyLlama, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def hold(model: Model, lock_bytes: int) -> None:
        held.append(lock_bytes)
        model_loading.hold(model, lock_bytes)

    monkeypatch.setattr("app.drafting.choose.tuning.hold", hold)
    budget = 100_000_000
    with closing(llamacpp.load(tiny_llama(layers=1), threads=1, lock_bytes=budget)) as model:
        found = Tuning(model, paths, None, lambda _: None, lambda _: None, lock_bytes=budget).run()
        assert own_recipe(model.info, paths) == found.best.recipe
    assert set(held[::2]) == {0}, "none while a candidate is made"
    assert all(0 < one < budget for one in held[1::2])


@pytest.mark.slow
@pytest.mark.usefixtures("drafting_pays")
def test_the_winner_s_file_is_all_that_is_left(target: Model, paths: Paths) -> None:
    most: list[int] = []

    def notify(text: str) -> None:
        if paths.self_drafts.exists():
            most.append(len(files(paths)))

    found = tune(target, paths, notify)
    best = found.best.recipe
    made = SelfDrafts(paths.self_drafts).made(target.info, best)
    assert files(paths) == [made]
    assert max(most) <= 2
    assert own_recipe(target.info, paths) == best
    with (
        closing(target.open(256)) as context,
        closing(drafters("self", target, context, paths)) as drafting,
    ):
        model = drafting.handles[0].model
        assert model is not None
        assert model.info.path == made


@pytest.mark.usefixtures("drafting_pays")
def test_each_recipe_is_told_as_it_is_measured_and_the_best_when_stopped(
    target: Model, paths: Paths
) -> None:
    told: list[str] = []

    def stop(text: str) -> None:
        if text.startswith("recipe 3"):
            raise KeyboardInterrupt

    tuning = Tuning(target, paths, None, stop, told.append, told.append)
    assert tuning.best_so_far == ""
    with pytest.raises(KeyboardInterrupt):
        tuning.run()
    assert [line.split(":")[0] for line in told] == ["recipe 1", "recipe 2"]
    assert all(re.search(r"\d % accepted, a token costs \d\.\d\d of a step", line) for line in told)
    assert "× plain predicted" in tuning.best_so_far


@pytest.mark.slow
def test_where_no_status_line_is_watched_each_recipe_is_a_line(
    tiny_llama: TinyLlama, paths: Paths, specchat: Callable[..., Any]
) -> None:
    ended = specchat("models", "tune", str(tiny_llama(layers=1)))
    assert ended.returncode == 0, ended.stderr
    recipes = [line for line in ended.stderr.splitlines() if line.startswith("recipe ")]
    assert len(recipes) >= 2
    assert "recipes for " in ended.stdout


@pytest.mark.usefixtures("drafting_pays")
def test_stopped_midway_it_leaves_no_file(target: Model, paths: Paths) -> None:
    def stop(text: str) -> None:
        if text.startswith("making q4_0"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(target, paths, stop)
    assert files(paths) == []
    assert tuned(target.info, paths) is None


@pytest.mark.usefixtures("drafting_pays")
def test_a_full_disk_ends_it_and_says_so(
    target: Model, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(target.info.path)._replace(free=0)
    with monkeypatch.context() as patch:
        patch.setattr(self_draft_store.shutil, "disk_usage", lambda _: usage)
        with pytest.raises(DiskFullError, match="too little disk space"):
            tune(target, paths)
    assert files(paths) == []


@pytest.mark.usefixtures("drafting_pays")
def test_fewer_experts_are_the_same_file(tiny_llama: TinyLlama, paths: Paths) -> None:
    with (
        closing(llamacpp.load(tiny_llama(layers=1, experts=(4, 2)), threads=1)) as model,
        closing(model.open(256)) as context,
    ):
        with closing(drafters("self:experts=1", model, context, paths)) as drafting:
            drafter = drafting.handles[0].model
            assert drafter is not None
            assert drafter.info.path == model.info.path
            assert (drafter.info.active_experts, drafter.info.variant) == (1, "experts1")
            limits, prompt = Limits(40, frozenset()), [40, 41, 42]
            plain = list(greedy_reply(context, prompt, limits, None))
            drafted = list(greedy_reply(context, prompt, limits, first_hit_of(drafting)))
        assert [one for step in plain for one in step.tokens] == [
            one for step in drafted for one in step.tokens
        ]
        assert sum(step.drafted for step in drafted) > 0


def test_a_running_state_is_refused(tiny_mamba: Path, paths: Paths) -> None:
    with (
        closing(llamacpp.load(tiny_mamba, threads=1)) as model,
        pytest.raises(DraftUnavailableError, match="cannot be drafted for"),
    ):
        tune(model, paths)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no such terminal")
@pytest.mark.usefixtures("llamacpp")
def test_ctrl_c_keeps_what_was_measured_and_leaves_no_file(on_terminal: Any, paths: Paths) -> None:
    terminal = on_terminal("models", "tune", "demo")
    terminal.read_until("recipe 2: ")
    terminal.type("\x03")
    code, said = terminal.end()
    assert code == 130
    assert "stopped: the best so far is q4_0, " in said
    assert "the same command measures the rest" in said
    assert files(paths) == []
    (kept,) = paths.tuning.iterdir()
    assert '"q4_0": {"acceptance"' in kept.read_text()
    again = on_terminal("models", "tune", "demo")
    assert "recipe 1: " not in again.read_until("recipe 2: ")
    again.type("\x03")
    assert again.end()[0] == 130


def test_a_recipe_that_would_shift_a_pattern_is_no_longer_what_self_means(
    tiny_llama: TinyLlama, paths: Paths
) -> None:
    with closing(llamacpp.load(tiny_llama(layers=8, architecture="smollm3"), threads=1)) as model:
        for text, is_kept in (("skip=2-5", True), ("skip=2-4", False)):
            remember(Tuned(Recipe.parse(text), 0.9, 0.5), model.info, paths)
            assert (tuned(model.info, paths) is not None) is is_kept
        told: list[str] = []
        set_aside_unusable(model.info, paths, told.append)
        assert len(told) == 1
        assert own_recipe(model.info, paths).skipped_layers == ()
