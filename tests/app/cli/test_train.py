"""`specchat models train`: what it says before, does, and leaves; killed, it comes to the same."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from app.history.store import open_history, remove_chat
from app.learned.registered import registered
from app.paths import Paths
from app.process import END_SIGNALS, code_after
from app.training import stages
from app.training.answers import Harvest, open_harvest
from app.training.plan import Method, Stage
from app.training.run import Order, Progress, Run, unfinished
from app.training.stages import Stages
from backends.base import Model, OutOfMemoryError
from tests.app.conftest import Specchat
from tests.fixtures.quick_training import LIBRARIES, PLAN, quicken
from tests.fixtures.tiny.kinds import Tiny

pytestmark = pytest.mark.usefixtures("llamacpp")

TinyLlama = Callable[..., Path]
MODULE = "tests.fixtures.quick_training"


@pytest.fixture(scope="module")
def target(tiny_llama: TinyLlama) -> Path:
    return tiny_llama(layers=8, form="gpt2")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(request.param)
    return request.param


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured, and it is not expected to pay."""
    monkeypatch.setattr(Stages, "measured", lambda _self: PLAN)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    quicken(monkeypatch.setattr, library)


def test_without_a_library_it_says_how_to_install_one(
    specchat: Specchat, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicken(monkeypatch.setattr, "")
    ended = specchat("models", "train", str(target))
    assert ended.returncode != 0
    assert "--extra train" in ended.stderr
    assert list(Paths.of_this_user().training.glob("*/state.json")) == []


@pytest.mark.usefixtures("planned")
def test_what_cannot_pay_is_not_begun(
    specchat: Specchat, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicken(monkeypatch.setattr, "")
    told = specchat("models", "train", str(target), "--json")
    assert told.returncode == 1
    found = json.loads(told.stdout)
    assert found["state"] == "cannot_pay"
    assert not found["plan"]["pays"]
    assert "lookup" in found["plan"]["instead"][-1]
    assert "--anyway" in specchat("models", "train", str(target)).stdout
    assert list(Paths.of_this_user().training.glob("*/state.json")) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["eagle3", "mtp"])
@pytest.mark.usefixtures("quick")
def test_a_dry_run_measures_and_leaves_nothing(
    method: str, specchat: Specchat, target: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The models that bring next-token layers keep a running state: one answer at a time."""

    def opened(model: Model, n_ctx: int, width: int, taps: Sequence[int]) -> Harvest:
        if width > 8:
            raise OutOfMemoryError("there is no room for so many")
        return open_harvest(model, n_ctx, width, taps)

    monkeypatch.setattr(stages, "open_harvest", opened)
    monkeypatch.setattr(stages, "_WIDTHS", (8, 16))
    model = tiny("qwen35") if method == "mtp" else target
    told = specchat("models", "train", str(model), "--minutes", "1", "--dry-run", "--json")
    assert told.returncode == 0, told.stderr
    plan = json.loads(told.stdout)["plan"]
    assert plan["method"] == method
    assert plan["width"] == (1 if method == "mtp" else 8)
    assert plan["tokens"] > 0
    assert all(seconds > 0.0 for seconds in plan["seconds"].values())
    assert list(Paths.of_this_user().training.glob("*/*")) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["eagle3", "hydra"])
@pytest.mark.usefixtures("planned", "quick")
def test_it_trains_tests_and_registers(method: str, specchat: Specchat, target: Path) -> None:
    ended = specchat("models", "train", str(target), "--method", method, "--anyway", "--json")
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["state"] == "trained"
    assert {one["name"] for one in found["results"]} == {"trained", "lookup", "ngram"}
    assert found["rates"]["plain"] > 0.0
    paths = Paths.of_this_user()
    [entry] = [one for one in registered(paths) if not one.is_bundled]
    assert entry.name == found["name"]
    assert found["draft"] == entry.name
    assert not found["private"]
    assert list(paths.training.glob("*/*")) == []
    asked = specchat(
        "ask", "--model", str(target), "--draft", found["draft"], "--max-tokens", "4", "hi"
    )
    assert asked.returncode == 0, asked.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("planned", "quick")
def test_ctrl_c_ends_it_after_its_step_and_it_goes_on(
    specchat: Specchat, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("models", "train", str(target), "--method", "hydra", "--anyway", "--chats")
    noted, paths = Run.note, Paths.of_this_user()
    with closing(open_history(paths)) as history:
        for question in ("What is tea?", "What is bread?"):
            history.add(history.create("demo"), "user", question)

    def interrupted(self: Run, progress: Progress) -> None:
        noted(self, progress)
        if progress.stage is Stage.TRAIN and progress.done == 3:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "note", interrupted)
        stopped = specchat(*words)
    assert stopped.returncode == 130
    assert "stopped in training" in stopped.stderr
    assert "the same command goes on" in stopped.stderr
    with closing(open_history(paths)) as history:
        remove_chat(history, 1, paths)  # it has been learnt from
        marks = history.marks()
    again = specchat(*words)
    assert again.returncode == 0, again.stderr
    assert "going on with training" in again.stderr
    assert "keep it as private" in again.stdout
    [entry] = [one for one in registered(paths) if not one.is_bundled]
    assert entry.missing(marks) == 1


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("number", END_SIGNALS)
def test_what_ends_a_process_ends_it_as_ctrl_c_does(
    number: int, specchat: Specchat, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quicken(monkeypatch.setattr, "")
    noted, paths = Run.note, Paths.of_this_user()

    def ended(self: Run, progress: Progress) -> None:
        noted(self, progress)
        signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "note", ended)
        stopped = specchat("models", "train", str(target), "--method", "hydra", "--anyway")
    assert stopped.returncode == code_after(number)
    assert "the same command goes on" in stopped.stderr
    [left] = unfinished(paths)
    assert left.progress.stage is Stage.GENERATE
    assert not list(paths.training.glob("*.lock"))


def test_what_is_unfinished_is_listed_and_removed(specchat: Specchat, target: Path) -> None:
    order = Order(method=Method.HYDRA, minutes=5.0)
    run = Run(Paths.of_this_user(), target, order)
    with run.locked():
        run.begin(PLAN)
    name, goes_on = f"{target.stem}-hydra", f"specchat models train {target} --method hydra"
    listed = specchat("models", "list")
    assert f"{name}, training of a drafter (generate, 0 %)" in listed.stderr
    assert f"to go on: {goes_on}" in listed.stderr
    [told] = json.loads(specchat("models", "list", "--json").stdout)["unfinished_trainings"]
    assert (told["name"], told["stage"], told["done"]) == (name, "generate", 0)
    removed = specchat("models", "remove", name)
    assert removed.returncode == 0, removed.stderr
    assert f"discarded the unfinished training of {name}" in removed.stderr
    assert not run.folder.exists()
    assert "unfinished" not in specchat("models", "list").stderr


@pytest.mark.nightly
def test_killed_at_random_moments_it_comes_to_the_same(
    library: str, target: Path, home: Path
) -> None:
    words = [sys.executable, "-m", MODULE, library, "models", "train", str(target)]
    words += ["--method", "hydra", "--anyway", "--json"]
    began = time.monotonic()
    whole = subprocess.run(words, capture_output=True, check=True)
    seconds, heads = time.monotonic() - began, home / "data" / "heads"
    expected = _made(heads), json.loads(whole.stdout)["results"]
    shutil.rmtree(heads)
    chance, killed, out = random.Random(0), 0, b""
    while not out:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            most = seconds * chance.random() if killed < 20 else None
            out, _ = process.communicate(timeout=most)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            killed += 1
    assert (_made(heads), json.loads(out)["results"]) == expected


def _made(heads: Path) -> dict[str, bytes]:
    [folder] = heads.iterdir()
    return {file.name: file.read_bytes() for file in folder.glob("*/*")}
