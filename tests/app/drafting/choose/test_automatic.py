"""What `auto` tries, in which order, and that no start tries what is known not to pay or fail."""

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("backends.llamacpp", reason="llama.cpp is not installed")

from app.drafting import draft_spec
from app.drafting.choose import automatic
from app.drafting.choose.automatic import promising
from app.drafting.choose.candidates import unopened
from app.drafting.choose.drafter_info import Kind
from app.drafting.choose.drafter_words import facts_in_words
from app.drafting.drafter_building import Builder, DrafterEnvironment
from app.drafting.drafter_spec import SELF, DrafterSpec
from app.engine.session_drafters import Drafting, build
from app.engine.session_ranking import rank
from app.loading.checked_loader import CheckedLoader
from app.loading.placement import MemoryPlan
from app.loading.session_options import SessionOptions
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends import llamacpp
from backends.base import Context, DiskFullError, Model, ModelError
from backends.llamacpp.requantize import requantize
from decoding.estimation.acceptance import Acceptance
from decoding.estimation.cost import CostModel, Measured
from decoding.planning.pausing import State
from models.metadata.identity import fingerprint
from models.self_draft.self_draft_store import SelfDrafts
from models.tuning.recipe_search import prospect
from scripts.models.change_vocabulary import Change, change_vocabulary
from tests.fixtures.costs import measured_as
from tests.fixtures.knowing import FLAT, PLANNED, drafters, knowledge

TinyLlama = Callable[..., Path]
STEEP = CostModel(Measured({1: 0.02, 2: 0.04, 16: 0.32}))


@pytest.fixture
def models(paths: Paths, tiny_llama: TinyLlama) -> Path:
    """A target, two smaller models with its tokens, one with others and one that is no model."""
    folder = paths.models
    folder.mkdir(parents=True)
    shutil.copyfile(tiny_llama(form="gpt2", layers=16, seed=6), folder / "big.gguf")
    shutil.copyfile(tiny_llama(form="gpt2", layers=1), folder / "small.gguf")
    shutil.copyfile(tiny_llama(form="gpt2", layers=2), folder / "middle.gguf")
    change_vocabulary(folder / "small.gguf", folder / "changed.gguf", Change(0.2))
    (folder / "damaged.gguf").write_bytes(b"GGUF")
    return folder


@pytest.fixture
def target(models: Path) -> Iterator[Model]:
    with closing(llamacpp.load(models / "big.gguf", threads=1)) as model:
        yield model


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The drafter models that were built, in order."""
    names: list[str] = []
    make = Builder.build

    def watched(self: Builder, node: DrafterSpec, **options: bool) -> object:
        if list(node.models):
            names.append(node.name)
        return make(self, node, **options)

    monkeypatch.setattr(Builder, "build", watched)
    return names


@pytest.fixture
def flat(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Passes of the target cost the same at any length, drafters' a tenth of them."""

    def calibrate(context: Context, tokens: Sequence[int], **_: float) -> Measured:
        plain = 0.02 if context.kv_bytes_per_token > 600 else 0.002
        return Measured({1: plain, 16: 1.1 * plain})

    yield from measured_as(calibrate, home, monkeypatch)


def agreeing(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trials expect so much of every drafter."""
    counts = {"warm:drawn": (15.0 * share, 15.0)}
    monkeypatch.setattr(
        "app.drafting.drafter_building.tried", lambda *_: Acceptance(counts, is_trial=True)
    )


def started(target: Model, paths: Paths) -> Drafting:
    """What a start with --draft auto comes to."""
    with closing(target.open(256)) as context:
        held = TargetContext(target, context)
        environment = DrafterEnvironment(target, held, paths, 1, None, lambda text: None)
        drafting = build(draft_spec.parse("auto", paths), environment)
        with closing(drafting):
            return drafting


def names(target: Model, paths: Paths, costs: CostModel = FLAT) -> list[str]:
    return [one.name for one in promising(knowledge(target, paths, costs), paths, PLANNED)]


def test_models_here_are_ranked_by_what_they_take_until_they_are_known(
    target: Model, paths: Paths
) -> None:
    found = names(target, paths)
    assert set(found) == {"small", "middle", SELF}
    assert found.index("small") < found.index("middle")


def test_what_is_remembered_counts_more_than_what_is_expected(
    target: Model, paths: Paths, models: Path
) -> None:
    memory = knowledge(target, paths).memory
    for name, share in (("small", 0.05), ("middle", 0.99)):
        counts = {"warm:drawn": (50 * share, 50.0)}
        memory.remember(fingerprint(models / f"{name}.gguf"), Acceptance(counts), {"name": name})
    memory.save()
    found = names(target, paths)
    assert found[0] == "middle"
    assert "small" not in found


@pytest.mark.slow
def test_what_is_remembered_of_a_copy_in_a_file_counts_too(target: Model, paths: Paths) -> None:
    recipe = prospect(target.info).recipe
    made = SelfDrafts(paths.self_drafts).get(target.info, recipe, lambda done, total: None)
    assert SELF in names(target, paths)
    memory = knowledge(target, paths).memory
    counts = {"warm:drawn": (2.0, 50.0)}
    memory.remember(fingerprint(made), Acceptance(counts), {"name": SELF, "path": str(made)})
    memory.save()
    assert SELF not in names(target, paths)


@pytest.mark.slow
@pytest.mark.usefixtures("flat")
def test_one_that_paid_has_its_turn_though_new_ones_seem_better(
    target: Model, paths: Paths, models: Path, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agreeing(0.0, monkeypatch)
    for number in range(6):
        shutil.copyfile(models / "small.gguf", models / f"new{number}.gguf")
        with (models / f"new{number}.gguf").open("ab") as file:
            file.write(bytes(number + 1))  # else it is the same model
    memory = knowledge(target, paths).memory
    counts = {"warm:drawn": (32.0, 50.0)}
    memory.remember(fingerprint(models / "middle.gguf"), Acceptance(counts), {"name": "middle"})
    memory.save()
    found = names(target, paths)
    assert found.index("middle") > 2
    drafting = started(target, paths)
    assert tried[-1] == "middle"
    assert "middle" in drafting.names
    assert len(tried) == 3


def test_nothing_is_opened_where_not_even_a_perfect_drafter_pays(
    target: Model, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(folder: Path) -> list[object]:
        raise AssertionError(f"{folder} was looked at")

    monkeypatch.setattr("app.drafting.choose.candidates.installed", installed)
    assert names(target, paths, STEEP) == []


def test_an_untried_one_may_be_better_than_its_kind(
    target: Model, paths: Paths, models: Path
) -> None:
    """Where only one that is nearly always right pays, which a trial shows."""
    costs = CostModel(Measured({1: 0.02, 2: 0.04, 16: 0.05}))
    assert {"small", "middle"} <= set(names(target, paths, costs))
    memory = knowledge(target, paths).memory
    memory.remember(
        fingerprint(models / "small.gguf"), Acceptance({"warm:drawn": (13.0, 20.0)}), {}
    )
    memory.save()
    found = names(target, paths, costs)
    assert "middle" in found
    assert "small" not in found


def test_what_does_not_fit_is_not_tried(target: Model, paths: Paths) -> None:
    known = knowledge(target, paths)
    assert list(promising(known, paths, MemoryPlan(256, 256, 10_000))) == []
    assert names(target, paths), "for want of room nothing is known of a drafter"


@pytest.mark.slow
@pytest.mark.usefixtures("flat")
def test_what_pays_is_kept_and_taken_again(
    target: Model, paths: Paths, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agreeing(0.9, monkeypatch)
    first = started(target, paths)
    assert tried == [SELF, "small"]  # the copy has as many layers, and takes as long
    assert "small" in first.names
    assert SELF not in first.names
    assert "small" in started(target, paths).names
    assert tried == [SELF, "small", "small"]


@pytest.mark.usefixtures("flat")
def test_nothing_is_chosen_by_costs_of_a_busy_machine(
    target: Model, paths: Paths, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agreeing(0.9, monkeypatch)
    unsure = Measured({1: 0.02, 16: 0.02}, 0.0, {16: 0.5})
    monkeypatch.setattr("app.learned.calibrations.calibrate", lambda *_, **__: unsure)
    assert started(target, paths).names == ["lookup", "retrieval", "ngram"]
    assert tried == []


@pytest.mark.slow
@pytest.mark.usefixtures("flat")
def test_what_does_not_pay_makes_room_for_the_next_and_is_not_loaded_again(
    target: Model, paths: Paths, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agreeing(0.0, monkeypatch)
    assert not [name for name in started(target, paths).names if name in tried]
    assert len(tried) == 2
    for _ in range(2):
        started(target, paths)
        assert sorted(tried) == sorted([SELF, "small", "middle"])
    pairs = rank(SessionOptions(str(target.info.path), threads=1), paths, lambda _: None).drafters
    known = {pair.name: pair for pair in pairs}
    for name in ("small", "middle"):
        assert known[name].acceptance == 0.0
        assert known[name].is_trial
        assert known[name].speedup is not None


@pytest.mark.slow
@pytest.mark.usefixtures("flat")
def test_a_few_are_loaded_at_one_start(
    target: Model, paths: Paths, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    agreeing(0.0, monkeypatch)
    monkeypatch.setattr(automatic, "_MOST_NEW", 1)
    for count in (1, 2, 3, 3):
        started(target, paths)
        assert len(set(tried)) == len(tried) == count


@pytest.mark.slow
@pytest.mark.usefixtures("flat")
def test_what_failed_is_not_tried_again_until_what_runs_it_changes(
    target: Model, paths: Paths, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreeing(0.9, monkeypatch)
    loads, usual = list[str](), CheckedLoader.load

    def load(loader: Any, path: Path, *options: Any, **named: Any) -> Model:
        if path == target.info.path:
            return usual(loader, path, *options, **named)
        loads.append(path.stem)
        raise ModelError("it cannot be loaded", "it was made so")

    monkeypatch.setattr(CheckedLoader, "load", load)
    monkeypatch.setattr("app.drafting.self_drafter.made", lambda *_: load(None, Path(SELF)))
    for _ in range(3):
        started(target, paths)
    assert sorted(loads) == ["middle", SELF, "small"]

    pairs = rank(SessionOptions(str(target.info.path), threads=1), paths, lambda _: None).drafters
    (small,) = [pair for pair in pairs if pair.name == "small"]
    assert small.is_compatible is False
    assert "it was made so" in small.why

    info = replace(target.info, engine="another build")
    monkeypatch.setattr(target, "info", info)
    started(target, paths)
    assert len(loads) == 5


@pytest.mark.usefixtures("flat")
def test_a_disk_that_was_full_is_not_held_against_a_drafter(
    target: Model, paths: Paths, tried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Model:
        raise DiskFullError("there is too little disk space for the self-drafter")

    monkeypatch.setattr("app.drafting.model_source.self_drafter.made", full)
    monkeypatch.setattr("app.drafting.choose.candidates.installed", lambda _: [])
    for count in (1, 2):
        started(target, paths)
        assert tried == [SELF] * count


@pytest.mark.slow
def test_another_vocabulary_is_read_once(
    target: Model, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read = automatic.compared

    def compared(one: automatic.DrafterInfo, *others: object) -> automatic.DrafterInfo:
        opened.append(one.name)
        return read(one, *others)  # pyright: ignore

    monkeypatch.setattr(automatic, "compared", compared)
    assert "changed" not in names(target, paths)
    assert {"changed", "damaged"} <= set(opened)
    opened.clear()
    names(target, paths)
    assert not {"changed", "damaged"} & set(opened)


@pytest.mark.slow
def test_what_would_have_to_be_downloaded_is_left_out(paths: Paths, models: Path) -> None:
    path = models / "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"
    shutil.copyfile(models / "big.gguf", path)
    with closing(llamacpp.load(path, threads=1)) as model:
        known = knowledge(model, paths)
        listed = [one for one in unopened(known.target, paths, None) if one.path is None]
        assert "1b" in [one.name for one in listed]
        found = list(promising(known, paths, PLANNED))
    assert found
    assert all(one.path or one.recipe for one in found)
    assert not {one.name for one in found} & {one.name for one in listed}


@pytest.mark.slow
@pytest.mark.usefixtures("flat")
def test_a_copy_of_few_bits_is_not_offered_but_made_where_it_is_asked_for(
    paths: Paths, tiny_llama: TinyLlama, tmp_path: Path, tried: list[str]
) -> None:
    path = tmp_path / "few.gguf"
    list(requantize(tiny_llama(form="gpt2", layers=16, seed=6), path, "q4_0"))
    with closing(llamacpp.load(path, threads=1)) as model, closing(model.open(256)) as context:
        assert not prospect(model.info).can_pay
        with closing(drafters("auto", model, context, paths)):
            assert SELF not in tried
        with closing(drafters(SELF, model, context, paths)) as drafting:
            assert drafting.names == [SELF]
            assert drafting.status.state is State.PAUSED
            assert "slower than plain here even if every drafted token" in drafting.status.reason
            assert any("no copy of few is expected to pay" in note for note in drafting.notes)
        with closing(drafters("self:q4_0", model, context, paths)) as drafting:
            assert not any("expected to pay" in note for note in drafting.notes)
    shutil.rmtree(paths.data / "acceptance", ignore_errors=True)
    pairs = rank(SessionOptions(str(path), threads=1), paths, lambda _: None).drafters
    (mine,) = [pair for pair in pairs if pair.name == SELF]
    assert "no copy of few is expected to pay" in "; ".join(facts_in_words(mine))
    assert not [pair for pair in pairs if pair.kind is Kind.COMPOSED]
    may_pay = [pair for pair in pairs if pair.break_even not in (None, math.inf)]
    assert pairs.index(mine) > max(map(pairs.index, may_pay))


@pytest.mark.slow
@pytest.mark.usefixtures("flat")
@pytest.mark.parametrize(
    ("trials", "asked", "pays"),
    [
        ((0.15, 0.35, 0.35, 0.35), 4, True),
        ((0.3, 0.0, 0.0, 0.0), 4, False),
        ((0.35, 0.9), 2, True),
        ((0.9,), 1, True),
        ((0.0,), 1, False),
    ],
)
def test_a_trial_goes_on_with_other_prompts_where_it_is_close(
    target: Model,
    paths: Paths,
    monkeypatch: pytest.MonkeyPatch,
    trials: Sequence[float],
    asked: int,
    pays: bool,
) -> None:
    """On one prompt noise decides: it was taken up at one start, and not at the next."""
    prompts: list[str] = []

    def tried(_: object, _target: object, _context: object, prompt: str, *_beside: object):
        prompts.append(prompt)
        share = trials[len(prompts) - 1]
        return Acceptance({"warm:drawn": (15.0 * share, 15.0)}, is_trial=True)

    monkeypatch.setattr("app.drafting.drafter_building.tried", tried)
    found = [one for one in promising(knowledge(target, paths), paths, PLANNED) if one.path]
    small = [one for one in found if one.name == "small"]
    monkeypatch.setattr(automatic, "promising", lambda *_: small)
    assert ("small" in started(target, paths).names) is pays
    assert len(prompts) == len(set(prompts)) == asked
