"""Drafters ranked for a target on this machine, from small models that are really loaded."""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.drafting.choose import pair_knowledge as displaced_weights
from app.drafting.choose.drafter_info import CostSource, DrafterInfo, Kind, Ranking
from app.drafting.choose.drafter_words import facts_in_words, nature
from app.drafting.drafter_spec import JACOBI, LOOKAHEAD
from app.drafting.gain import judged_of
from app.engine.session_opening import open_session
from app.engine.session_ranking import rank
from app.learned.acceptance_memory import AcceptanceMemory
from app.loading import placement as stream_plan
from app.loading.session_options import SessionOptions
from app.paths import Paths
from backends.base import Context, OutOfMemoryError, UsageError
from backends.streaming.mapped_file import DiskSpeed
from decoding.estimation.acceptance import Acceptance, AcceptanceEstimates
from decoding.estimation.cost import Measured
from decoding.sampling.distribution import SamplingSettings
from models.metadata.identity import fingerprint
from models.metadata.memory_bill import Fit
from scripts.models.change_vocabulary import Change, change_vocabulary
from tests.app.conftest import Specchat
from tests.fixtures.costs import measured_as
from tests.fixtures.drafter_files import EAGLE3, EAGLE3_KEYS, written
from tests.fixtures.local_hub import LocalHub
from tests.fixtures.sessions import new_reply

pytestmark = pytest.mark.usefixtures("llamacpp")

GREEDY = SamplingSettings(temperature=0.0)
TinyLlama = Callable[..., Path]


@pytest.fixture
def folder() -> Path:
    """Where this test's user keeps models."""
    folder = Paths.of_this_user().models
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def models(folder: Path, tiny_llama: TinyLlama, tiny_mamba: Path) -> Path:
    """A target and five smaller models: three that can draft for it and two that cannot."""
    shutil.copyfile(tiny_llama(form="gpt2", layers=6, seed=6), folder / "big.gguf")
    same = tiny_llama(form="gpt2", layers=1)
    shutil.copyfile(same, folder / "same.gguf")
    change_vocabulary(same, folder / "changed.gguf", Change(0.2))
    shutil.copyfile(tiny_llama(form="spm", layers=1), folder / "other.gguf")
    shutil.copyfile(tiny_mamba, folder / "mamba.gguf")
    (folder / "damaged.gguf").write_bytes(b"GGUF")
    return folder


@pytest.fixture
def costs(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether it was the target, for each model that was measured: by how many layers it has.

    The target's passes cost about the same at any length, and small models next to nothing.
    """
    measured: list[bool] = []

    def calibrate(context: Context, tokens: Sequence[int], **_: float) -> Measured:
        measured.append(context.kv_bytes_per_token > 200)
        return Measured({1: 0.02, 63: 0.0284} if measured[-1] else {1: 0.0002, 63: 0.001})

    for _ in measured_as(calibrate, home, monkeypatch):
        yield measured


def ranked(name: str, told: list[str] | None = None) -> Ranking:
    notify = [].append if told is None else told.append
    return rank(SessionOptions(model=name, threads=1), Paths.of_this_user(), notify)


def by_name(found: Ranking) -> dict[str, DrafterInfo]:
    pairs = {pair.name: pair for pair in found.drafters}
    assert len(pairs) == len(found.drafters)
    return pairs


@pytest.mark.slow
@pytest.mark.usefixtures("models", "costs")
def test_what_is_installed_is_compared_without_being_run() -> None:
    pairs = by_name(ranked("big"))
    drafters = pairs
    assert drafters["same"].kind is Kind.SAME_VOCABULARY
    assert drafters["same"].shared == 1.0
    for name in ("changed", "other"):
        shared = drafters[name].shared
        assert drafters[name].kind is Kind.ACROSS_VOCABULARIES
        assert shared is not None
        assert 0.5 < shared <= (0.99 if name == "changed" else 1.0)
        assert "% of its tokens are shared" in drafters[name].why
    for name, why in (("mamba", "running state"), ("damaged", "damaged")):
        assert drafters[name].is_compatible is False
        assert why in drafters[name].why
        assert pairs[name].speedup is None
        assert pairs[name].break_even is None
    assert "big" not in pairs
    assert "demo" not in pairs  # it is larger
    assert next(iter(pairs)) == "lookup"
    assert set(list(pairs)[-2:]) == {"mamba", "damaged"}


@pytest.mark.slow
@pytest.mark.usefixtures("costs")
def test_a_model_that_streams_is_ranked_once_that_is_agreed(
    folder: Path, tiny_llama: TinyLlama, demo_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copyfile(tiny_llama(layers=1), folder / "small.gguf")
    free, disk = round(1.45 * demo_file.stat().st_size), DiskSpeed(1e9, "given")
    monkeypatch.setattr("app.engine.session_ranking.free_memory", lambda *_: free)
    monkeypatch.setattr("app.engine.session_ranking.disk_speed", lambda *_: disk)
    monkeypatch.setattr(displaced_weights, "known_disk_speed", lambda *_: disk)
    options, paths = SessionOptions("demo", threads=1, ctx=512), Paths.of_this_user()
    with pytest.raises(OutOfMemoryError) as refused:
        rank(options, paths, lambda _: None)
    assert "--stream on" in refused.value.remedy
    monkeypatch.setattr(stream_plan, "_LEAST_RESERVED", 1_000_000)
    pairs = by_name(rank(replace(options, stream="on"), paths, lambda _: None))
    small, lookup = pairs["small"], pairs["lookup"]
    assert pairs["self"].fit is Fit.TOO_BIG
    assert small.fit in (Fit.FITS, Fit.TIGHT)
    assert (lookup.break_even, small.break_even) != (None, None)
    assert (lookup.break_even or 1.0) < (small.break_even or 0.0)


@pytest.mark.slow
def test_a_head_beside_the_target_that_does_not_fit_is_named(models: Path) -> None:
    written(models / "head-for-another.gguf", "eagle3", EAGLE3_KEYS, EAGLE3)
    (head,) = [pair for pair in ranked("big").drafters if pair.kind is Kind.TRAINED]
    assert head.name == "head-for-another.gguf"
    assert head.is_compatible is False
    assert head.why.startswith("EAGLE-3 head beside the model: it reads hidden states of 64")


@pytest.mark.slow
@pytest.mark.usefixtures("models", "costs")
def test_costs_are_measured_or_expected_from_size_and_never_both() -> None:
    found = ranked("big")
    pairs = by_name(found)
    assert found.plain_seconds == 0.02
    assert (pairs["lookup"].draw_cost, pairs["lookup"].cost_source) == (0.0, CostSource.FREE)
    assert pairs["lookup"].memory_bytes == 0
    same = pairs["same"]
    assert same.cost_source is CostSource.SIZE
    assert same.draw_cost is not None
    assert 0.2 < same.draw_cost < 0.5  # one layer of six, and as large an output matrix
    assert same.break_even is not None
    assert pairs["lookup"].break_even is not None
    assert 0.0 < pairs["lookup"].break_even < same.break_even < 1.0
    assert {pair.acceptance for pair in found.drafters} == {None}
    assert {pair.speedup for pair in found.drafters} == {None}
    missing = pairs["124m"]
    assert (missing.is_installed, missing.break_even) == (False, math.inf)


@pytest.mark.slow
@pytest.mark.usefixtures("costs")
def test_what_guesses_or_is_made_of_others_is_listed_with_what_was_measured(models: Path) -> None:
    pairs = by_name(ranked("big"))
    jacobi, lookahead = pairs["jacobi"], pairs["lookahead"]
    for pair in (jacobi, lookahead):
        assert pair.kind is Kind.GUESSES
        assert (pair.memory_bytes, pair.draw_cost, pair.speedup) == (0, 0.0, None)
        assert pair.is_installed
    assert jacobi.break_even is not None
    assert lookahead.break_even is not None
    assert jacobi.break_even < lookahead.break_even < 1.0  # its whole tree goes along
    for name in ("cascade(lookup,self)", "vote(lookup,self)", "tree(self)", "paths(self)"):
        pair = pairs[name]
        figures = (pair.draw_cost, pair.acceptance, pair.speedup, pair.break_even)
        assert figures == (None, None, None, None)
        assert "whether it pays is measured while it drafts" in facts_in_words(pair)

    memory = AcceptanceMemory(models / "big.gguf", Paths.of_this_user())
    memory.remember("lookahead", Acceptance({"warm:drawn": (6.0, 15.0), "warm:at0": (1, 1)}), {})
    memory.save()
    lookahead = by_name(ranked("big"))["lookahead"]
    assert lookahead.acceptance == pytest.approx(0.4)
    assert lookahead.speedup is not None
    assert 1.0 < lookahead.speedup < 1.0 + 0.4 + 0.4**2


@pytest.mark.slow
@pytest.mark.usefixtures("models", "costs")
def test_what_a_cascade_was_heard_to_reach_is_shown() -> None:
    spec = "cascade(lookup,self)"
    options = SessionOptions(model="big", draft=spec, threads=1)
    with closing(open_session(options, Paths.of_this_user(), lambda _: None)) as session:
        prompt = session.template.raw("the other")
        for _ in session.stream(prompt, new_reply(), lambda: False):
            pass
    assert by_name(ranked("big"))[spec].acceptance is not None


@pytest.mark.slow
@pytest.mark.usefixtures("models", "costs")
def test_a_model_without_branches_has_no_lookahead(monkeypatch: pytest.MonkeyPatch) -> None:
    def calibrate(context: Any, tokens: Sequence[int], **_: float) -> Measured:
        context.tree_refusal = "runs no branches"
        return Measured({1: 0.02, 16: 0.022})

    monkeypatch.setattr("app.learned.calibrations.calibrate", calibrate)
    pairs = by_name(ranked("big"))
    for name in ("lookahead", "tree(self)"):
        one = pairs[name]
        assert (one.is_compatible, one.why) == (False, "big runs no branches")


@pytest.mark.slow
@pytest.mark.usefixtures("models", "costs")
def test_a_speedup_needs_an_acceptance_that_was_measured(tiny_llama: TinyLlama) -> None:
    outside = tiny_llama(form="gpt2", layers=1, seed=6)
    for drafter in ("same", str(outside)):
        options = SessionOptions(model="big", draft=drafter, threads=1)
        session = open_session(options, Paths.of_this_user(), lambda _: None)
        with closing(session):
            prompt = session.template.raw("the other")
            for _ in session.stream(prompt, new_reply(), lambda: False):
                pass
    pairs = by_name(ranked("big"))
    for name in ("same", str(outside)):
        pair = pairs[name]
        assert pair.is_installed
        assert pair.cost_source is CostSource.MEASURED
        assert pair.draw_cost == pytest.approx(0.01)
        assert pair.acceptance is not None
        assert pair.speedup is not None
        assert pair.break_even is not None
        assert (pair.speedup >= 1.0) == (pair.acceptance >= pair.break_even)
    assert pairs["changed"].speedup is None


@pytest.mark.slow
@pytest.mark.usefixtures("costs")
def test_what_a_trial_expects_is_not_called_accepted(models: Path) -> None:
    key, counts = fingerprint(models / "same.gguf"), {"warm:drawn": (6.0, 15.0)}
    for is_trial, words in (
        (True, "acceptance 40 % expected from a trial"),
        (False, "acceptance 40 % so far"),
    ):
        memory = AcceptanceMemory(models / "big.gguf", Paths.of_this_user())
        memory.remember(key, Acceptance(counts, is_trial=is_trial), {})
        memory.save()
        pair = by_name(ranked("big"))["same"]
        assert pair.acceptance == pytest.approx(0.4)
        assert pair.acceptance_source == ("trial" if is_trial else "judged")
        assert words in "; ".join(facts_in_words(pair))


@pytest.mark.usefixtures("folder")
def test_a_target_that_is_not_here_has_no_measured_figure(
    local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.engine.session_ranking.free_memory", lambda *_: 64_000_000_000)
    found = ranked("llama3-8b")
    pairs = by_name(found)
    assert (found.target, found.is_installed, found.plain_seconds) == ("llama3.1-8b", False, None)
    for pair in found.drafters:
        figures = (pair.draw_cost, pair.acceptance, pair.speedup, pair.break_even)
        assert figures == (None, None, None, None)
    assert pairs["1b"].kind is Kind.SAME_VOCABULARY
    assert pairs["124m"].kind is Kind.ACROSS_VOCABULARIES
    assert pairs["1b"].fit is Fit.FITS
    assert pairs["demo"].is_compatible is None
    assert pairs["demo"].is_installed
    assert local_hub.asked == []


@pytest.mark.slow
@pytest.mark.usefixtures("costs")
def test_what_does_not_fit_beside_the_target_comes_after_what_does(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = (models / "big.gguf").stat().st_size
    monkeypatch.setattr("app.engine.session_ranking.free_memory", lambda *_: 40_000_000)
    found = [pair for pair in ranked("big").drafters if pair.is_compatible]
    assert found[-1].name == "124m"
    assert found[-1].fit is Fit.TOO_BIG
    monkeypatch.setattr("app.engine.session_ranking.free_memory", lambda *_: size)
    with pytest.raises(OutOfMemoryError, match="big"):
        ranked("big")


@pytest.mark.slow
@pytest.mark.usefixtures("models")
def test_a_target_is_measured_once_and_no_drafter_ever(costs: list[bool]) -> None:
    told: list[str] = []
    assert ranked("big", told).plain_seconds == ranked("big").plain_seconds == 0.02
    assert costs == [True]
    assert "measuring what big costs here" in told


@pytest.mark.slow
@pytest.mark.usefixtures("models", "costs")
def test_what_a_busy_machine_measured_is_told_as_such(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = "drafters for big, 50.0 tokens per second without drafting"
    doubt = " (measured on a busy machine: may be off by 30 % or more)"
    for unsure, words in (({63: 0.3}, doubt), ({}, "")):
        found = Measured({1: 0.02, 63: 0.0284}, 0.0, unsure)
        monkeypatch.setattr(
            "app.learned.calibrations.calibrate", lambda *_, found=found, **__: found
        )
        for _ in range(2):  # measured, and as it was kept
            shown = " ".join(specchat("models", "pair", "big").stdout.split())
            assert shown.startswith(f"{title}{words} ")
        told = json.loads(specchat("models", "pair", "big", "--json").stdout)
        assert (told["steady"], told["spread"]) == (not unsure, max(unsure.values(), default=0.0))
        shutil.rmtree(Paths.of_this_user().calibrations)


@pytest.mark.slow
@pytest.mark.usefixtures("models", "costs")
def test_a_drafter_that_a_busy_machine_measured_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for unsure, source in (({63: 0.3}, CostSource.BUSY), ({}, CostSource.MEASURED)):
        found = Measured({1: 0.002, 63: 0.01}, 0.0, unsure)
        monkeypatch.setattr(
            "app.learned.calibrations.calibrate", lambda *_, found=found, **__: found
        )
        options = SessionOptions(model="big", draft="same", threads=1)
        open_session(options, Paths.of_this_user(), [].append).close()
        assert by_name(ranked("big"))["same"].cost_source is source
        shutil.rmtree(Paths.of_this_user().calibrations)


@pytest.mark.usefixtures("models")
def test_nothing_drafts_for_a_model_with_a_running_state() -> None:
    found = ranked("mamba")
    assert all(pair.is_compatible is False for pair in found.drafters)
    assert all("running state" in pair.why for pair in found.drafters)


def test_an_unknown_target() -> None:
    with pytest.raises(UsageError, match="no model"):
        ranked("nothing-like-it")


@pytest.mark.slow
@pytest.mark.usefixtures("models", "costs")
def test_the_command_in_text_and_json(specchat: Specchat) -> None:
    ended = specchat("models", "pair", "big")
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0] == "drafters for big, 50.0 tokens per second without drafting"
    assert max(map(len, lines)) <= 100
    assert lines[1].startswith(
        "  lookup: prompt lookup; drafts at no cost, break-even acceptance: 1 %; "
    )
    assert "cannot draft: it keeps a running state" in ended.stdout
    assert "no gain here" in ended.stdout
    assert "None" not in ended.stdout

    found = json.loads(specchat("models", "pair", "big", "--json").stdout)
    assert (found["schema"], found["target"], found["installed"]) == (1, "big", True)
    pairs = {pair["name"]: pair for pair in found["drafters"]}
    assert pairs["same"]["kind"] == "same vocabulary"
    assert pairs["same"]["predicted_speedup"] is None
    assert pairs["same"]["draw_cost_source"] == "expected from size"
    assert pairs["same"]["acceptance_source"] is None
    assert (pairs["124m"]["break_even"], pairs["124m"]["can_pay"]) == (None, False)
    assert pairs["mamba"]["compatible"] is False


@pytest.mark.usefixtures("costs")
def test_the_command_for_the_bundled_model_and_one_that_is_not_here(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.engine.session_ranking.free_memory", lambda *_: 64_000_000_000)
    shown = specchat("models", "pair", "demo").stdout
    assert "tokens per second without drafting" in shown
    assert "the model itself in q4_0" in shown
    shown = specchat("--threads", "1", "models", "pair", "llama3-8b").stdout
    assert "specchat models pull llama3.1-8b" in shown.splitlines()[0]
    assert specchat("--threads", "0", "models", "pair", "demo").returncode == 2


@pytest.mark.slow
@pytest.mark.usefixtures("models", "costs")
def test_the_settings_count(specchat: Specchat) -> None:
    def memory() -> int:
        found = json.loads(specchat("models", "pair", "big", "--json").stdout)
        return next(one["memory_bytes"] for one in found["drafters"] if one["name"] == "same")

    usual = memory()
    settings = Paths.of_this_user().settings
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("ctx = 64\n")
    assert memory() < usual


def test_similar_drafters_differ_in_their_first_words() -> None:
    first = [
        nature(DrafterInfo(name, Kind.LOOKUP, is_compatible=True, why=""))
        for name in (JACOBI, LOOKAHEAD)
    ]
    assert first[0].split()[0] != first[1].split()[0]
    assert all(len(words) <= 31 for words in first)


def test_a_token_of_a_free_drafter_counts_once_whatever_kind_of_text_it_is_in() -> None:
    estimates = AcceptanceEstimates()
    estimates.begin(0.0)
    for kind in ("prose", "code"):
        estimates.text_kind = kind
        estimates.add_token(3, 0.5, accepted=kind == "code")
    accepted, judged = judged_of(estimates.acceptance, is_free=True)
    assert (accepted, judged) == pytest.approx((1.0, 2.0), abs=0.05)
