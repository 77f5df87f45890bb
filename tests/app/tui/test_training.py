"""A drafter of one's own: predicted, trained in a child process, stopped, taken up, and used."""

import json
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from app.paths import Paths
from app.tui import training
from app.tui.training import TrainScreen, newest_run, options_of, words_of
from backends.base import DownloadStoppedError, SpecchatError
from models.reference import Reference
from tests.app.tui.conftest import Chat
from tests.fixtures.small_app import compare_screen, small_app

PLAN = {
    "pays": False,
    "lines": [
        "  answers of the model      50 min  530,000 tokens",
        "  training                  48 min  388 steps, eagle3",
        "  test                      18 min  60 prompts never trained on",
        "to reach here: 1.82 accepted of 3 drafted tokens (acceptance 0.77 of each)",
        "usual with so much data, by others' reports, not measured here: 0.92: 0.71× plain",
    ],
    "instead": ["--draft lookup costs nothing and suits texts that repeat themselves"],
}
RESULT = {
    "state": "trained",
    "plan": PLAN,
    "draft": "lookup",
    "lines": ["kept of the first token: 0.56 ± 0.02"],
}
TRAINER = """
import json, sys, time
from pathlib import Path
folder = Path({folder!r})
if "--dry-run" in sys.argv:
    print(json.dumps({{"plan": {plan!r}}}))
elif (folder / "fails").exists():
    print("error: the disk is full\\nFree some space.", file=sys.stderr)
    sys.exit(1)
else:
    run = folder / "run"
    run.mkdir(exist_ok=True)
    target = (folder / "target").read_text()
    state = dict(stage="train", done=17, total=50, seconds_left=3000, target=target)
    (run / "state.json").write_text(json.dumps(state))
    for _ in range(6000):
        if (folder / "go").exists():
            (run / "state.json").unlink()
            print(json.dumps({result!r}))
            break
        time.sleep(0.01)
"""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of runs; a file `go` in it ends a training, `fails` lets it fail."""
    folder = Paths.of_this_user().training
    folder.mkdir(parents=True)
    script = tmp_path / "trainer.py"
    script.write_text(TRAINER.format(folder=str(folder), plan=PLAN, result=RESULT))
    monkeypatch.setattr(training, "COMMAND", (sys.executable, str(script)))
    return folder


def words(chat: Chat) -> str:
    return chat.screen.store.downloads.get("drafter of your own", "")


async def begun(chat: Chat) -> None:
    """Look at the prediction and begin the training."""
    await chat.ready()
    loaded = chat.app.engine.status.loaded
    assert loaded
    (chat.app.engine.paths.training / "target").write_text(str(loaded.reference.path))
    await chat.say("/train")
    await chat.until("to reach here: 1.82 accepted")
    await chat.press("down", "enter")
    await chat.until(lambda: words(chat) == "train, 34 %, 50 min left")


async def test_it_is_predicted_trained_and_used(chat: Chat, runs: Path) -> None:
    await begun(chat)
    await chat.until("drafter of your own: train, 34 %, 50 min left")
    (runs / "go").touch()
    await chat.until("kept of the first token: 0.56")
    assert not words(chat)
    await chat.press("down", "enter")
    await chat.until(lambda: chat.app.engine.draft == "lookup")


async def test_it_is_stopped_and_goes_on(chat: Chat, runs: Path) -> None:
    await begun(chat)
    await chat.say("/train")
    await chat.until("Stop")
    await chat.press("enter")
    await chat.until(lambda: not words(chat))
    assert not chat.cards
    with FileLock(runs / "run.lock"):
        await chat.say("/train start")
        await chat.until("under way in another specchat: train, 34 %")
        assert not words(chat)
        await chat.press("escape")
    await chat.say("/train")
    await chat.until("not finished: train, 34 %")
    await chat.press("enter")
    await chat.until(lambda: words(chat) == "train, 34 %, 50 min left")
    await chat.say("/train stop")
    await chat.until(lambda: not words(chat))


async def test_what_fails_is_told_with_the_reason(chat: Chat, runs: Path) -> None:
    (runs / "fails").touch()
    await chat.ready()
    await chat.say("/train start")
    await chat.until("the disk is full")
    await chat.until("Free some space.")


async def test_it_ends_with_the_app(chat: Chat, runs: Path) -> None:
    await begun(chat)
    job = training.TrainingJob(runs, Reference("another.gguf", Path("another.gguf")), [])
    assert job.running
    chat.screen.downloads.run("another", job, lambda: None)
    chat.screen.downloads.stop_all()
    await chat.until(lambda: not job.running)
    with pytest.raises(DownloadStoppedError):
        job.result()


@pytest.mark.parametrize("size", [(80, 24), (40, 20)])
async def test_the_prediction_at_every_size(
    size: tuple[int, int], pytestconfig: pytest.Config
) -> None:
    lines = [*PLAN["lines"], *PLAN["instead"]]
    async with small_app(size) as shown:
        await shown.open(TrainScreen(lines, {"start": "Train it all the same, in the background"}))
        compare_screen(shown.app, f"train_{size[0]}x{size[1]}", pytestconfig)
        await shown.press("enter")
        assert shown.app.returned == ["start"]


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ({}, "it begins"),
        ({"stage": "test", "done": 1, "total": 0}, "it begins"),
        ({"stage": "test", "done": 1, "total": 3}, "test, 33 %"),
        ({"stage": "train", "done": 1, "total": 2, "seconds_left": 20}, "train, 50 %, 20 s left"),
        (
            {"stage": "train", "done": 1, "total": 2, "is_paused": True},
            "train, waits for the answer",
        ),
    ],
)
def test_states_in_words(state: dict[str, object], shown: str) -> None:
    assert words_of(state) == shown


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_state_is_none(runs: Path, content: bytes) -> None:
    (runs / "run").mkdir()
    (runs / "run" / "state.json").write_bytes(content)
    assert newest_run(runs, Path("model.gguf")) == ({}, False)


def test_the_run_of_another_model_is_not_taken_up(runs: Path) -> None:
    state = runs / "run" / "state.json"
    state.parent.mkdir()
    order = {"method": "hydra", "minutes": 3.0, "seed": 0, "chats": True, "base": "", "system": "x"}
    facts = {"stage": "train", "done": 1, "total": 2, "target": "one.gguf", "order": order}
    state.write_text(json.dumps(facts))
    with FileLock(runs / "run.lock"):
        assert newest_run(runs, Path("one.gguf")) == (facts, True)
    found, is_held = newest_run(runs, Path("one.gguf"))
    assert not is_held
    assert words_of(found) == "train, 50 %"
    goes_on = ["--anyway", "--method", "hydra", "--minutes", "3.0", "--chats"]
    assert options_of(found) == goes_on
    assert options_of(newest_run(runs, Path("other.gguf"))[0]) == ["--anyway"]


def test_a_command_that_tells_nothing_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(training, "COMMAND", (sys.executable, "-c", ""))
    job = training.TrainingJob(tmp_path, Reference("model.gguf", Path("model.gguf")), [])
    while job.running:
        time.sleep(0.01)
    with pytest.raises(SpecchatError, match="nothing was told"):
        job.result()
