"""What the prompt's frame says, at three sizes."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from app.engine.engine_status import Phase, Status
from app.settings.preferences import Preferences
from app.tui.prompt.prompt_text import PromptText
from app.tui.prompt.token_counts import TokenCounts
from tests.fixtures.prompt_app import Prompting, prompting, ready
from tests.fixtures.snapshots import compare_snapshot

SIZES = [(120, 36), (80, 24), (40, 20), (10, 3)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


STATES: dict[str, dict[str, object]] = {
    "idle": {"title": ""},
    "demo": {"title": "", "status": ready("demo")},
    "answering": {"is_answering": True},
    "panel open": {"is_answering": True, "is_panel_shown": True},
    "queue": {"is_answering": True, "queued": 2},
    "stopped": {"queued": 2},
    "downloading": {"downloads": {"qwen3-4b": "34 %, 2 min left"}},
    "paused": {"drafting": "paused (11 % accepted, needs 22 %)"},
    "lossy": {"drafting": "▲ lossy"},
    "editing": {"is_editing": True},
    "question selected": {"selected": "user"},
    "answer selected": {"selected": "assistant"},
    "no model": {"status": Status(Phase.FAILED)},
    "loading": {"status": Status(Phase.LOADING, "loading 40 %")},
    "broken off": {"is_broken_off": True},
    "not saved": {"not_saved": "the disk is full"},
    "odd title": {"title": "\x1b[31m\u202e한국어 한국어 한국어 한국어 한국어 한국어\n[b]"},
    "another key": {"preferences": Preferences(Path("config.toml"), keys={"help": "alt+h,f10"})},
}


def show(prompt: Prompting, state: str) -> None:
    """Bring the store into one of the mock-ups' states."""
    prompt.store.title = "Correct the spelling of letter.md"
    for name, value in STATES[state].items():
        setattr(prompt.store, name, value)
    if state == "editing":
        prompt.prompt.begin_edit("Which words did you change? As JSON.", (), 3)


@pytest.mark.parametrize("size", SIZES)
async def test_each_state(size: tuple[int, int], pytestconfig: pytest.Config) -> None:
    shown: list[str] = []
    for state in STATES:
        async with prompting(size) as prompt:
            show(prompt, state)
            lines = [line for line in await prompt.lines() if line]
            shown.append("\n".join([f"# {state}", *lines]))
    name = f"prompt_states_{size[0]}x{size[1]}"
    compare_snapshot(pytestconfig, name, "\n\n".join(shown) + "\n")


@pytest.mark.parametrize("size", [(80, 12), (40, 20)])
async def test_each_title(size: tuple[int, int], folder: Path, pytestconfig: pytest.Config) -> None:
    (folder / "data.csv").write_text("1 2 3 " * 1000)
    (folder / "report.md").write_text("word " * 20)
    (folder / "picture.bin").write_bytes(b"\xff\xfe\x00")
    shown: list[str] = []

    async def note(prompt: Prompting, what: str) -> None:
        lines = [line for line in await prompt.lines() if line][1:]
        shown.append("\n".join([f"# {what}", *lines]))

    async with prompting(size) as prompt:
        prompt.store.status = ready(context_size=3000)
        for text in ("And check @nots.md", "/foo", "/modle qwen"):
            prompt.prompt.write(text)
            await prompt.press("enter")
            await note(prompt, text)
        for text, expected in (
            ("see @picture.bin", "not text"),
            ("@report.md", "23 tokens"),
            ("@data.csv", "not fit"),
            ("word " * 150, "150 tokens"),
            ("@report.md @data.csv", "fit"),
        ):
            prompt.prompt.write(text)
            await prompt.until(lambda expected=expected: expected in prompt.title)
            await note(prompt, text[:20])
        prompt.prompt.take()
        await prompt.paste("a line\n" * 42)
        await prompt.until(lambda: "42" in prompt.title)
        await note(prompt, "paste")
        await prompt.press("ctrl+c", "ctrl+c")
        await note(prompt, "Ctrl+C")
        await prompt.type("/s")
        await note(prompt, "completion")
    compare_snapshot(pytestconfig, f"prompt_titles_{size[0]}x{size[1]}", "\n\n".join(shown) + "\n")


def test_a_count_that_fails_is_left_out() -> None:
    failed: Future[int] = Future()
    failed.set_exception(ValueError("no model"))
    counts = TokenCounts(lambda _: failed)
    counts.update(PromptText("word " * 200))
    assert counts.summaries(None) == []
