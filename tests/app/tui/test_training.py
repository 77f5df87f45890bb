"""A drafter of one's own: predicted, trained in a child process, stopped, taken up, and used."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from filelock import FileLock

from app.paths import Paths
from app.training.plan import Method, Stage
from app.training.run import Begun, Order, Progress
from app.tui import training
from app.tui.training import TrainScreen, newest_run
from backends.base import DownloadStoppedError, SpecchatError
from models.reference import Reference
from tests.app.tui.conftest import Chat
from tests.fixtures.quick_training import PLAN as QUICK_PLAN
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


def state_of(target: Path) -> str:
    """What is on disk of a run of a model."""
    order = Order(method=Method.HYDRA, minutes=3.0, chats=True, system="x")
    progress = Progress(Stage.TRAIN, 17, 50, 3000.0)
    begun = Begun(Path(), target, str(target), "", order, QUICK_PLAN, progress)
    return json.dumps(asdict(begun), default=str)


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
    state = json.loads({state!r}) | dict(target=target)
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
    script.write_text(
        TRAINER.format(folder=str(folder), plan=PLAN, result=RESULT, state=state_of(Path()))
    )
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
    job = training.TrainingJob(
        chat.app.engine.paths, Reference("another.gguf", Path("another.gguf")), []
    )
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


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"plan": {}}'])
def test_a_damaged_state_is_none(runs: Path, content: bytes) -> None:
    (runs / "run").mkdir()
    (runs / "run" / "state.json").write_bytes(content)
    assert newest_run(Paths.of_this_user(), Path("model.gguf")) is None


def test_the_run_of_another_model_is_not_taken_up(runs: Path) -> None:
    state, paths = runs / "run" / "state.json", Paths.of_this_user()
    state.parent.mkdir()
    state.write_text(state_of(Path("one.gguf")))
    assert newest_run(paths, Path("other.gguf")) is None
    found = newest_run(paths, Path("one.gguf"))
    assert found
    assert not found.is_held
    with FileLock(runs / "run.lock"):
        assert found.is_held
    assert found.words == "train, 34 %, 50 min left"
    assert found.options == ["--method", "hydra", "--minutes", "3.0", "--chats"]


def test_a_command_that_tells_nothing_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "COMMAND", (sys.executable, "-c", ""))
    job = training.TrainingJob(
        Paths.of_this_user(), Reference("model.gguf", Path("model.gguf")), []
    )
    while job.running:
        time.sleep(0.01)
    with pytest.raises(SpecchatError, match="nothing was told"):
        job.result()
