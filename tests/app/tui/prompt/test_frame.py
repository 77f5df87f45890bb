"""What the prompt's frame says, at three sizes."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from app.ahead.expected import AheadState
from app.dialogue.tree import Turn
from app.engine.status import Phase, Status
from app.settings.catalogue import SWITCHED_OFF
from app.settings.in_effect import Preferences
from app.tui.prompt.folding import PromptText
from app.tui.prompt.prompt import TokenCounts
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
    "command": {"is_answering": True, "runs_command": True},
    "stopped": {"queued": 2},
    "downloading": {"downloads": {"qwen3-4b": "34 %, 2 min left"}},
    "paused": {"drafting": "paused (11 % accepted, needs 22 %)"},
    "reading ahead": {"ahead": AheadState(1850, 2010), "has_text": True},
    "reading a chat ahead": {"ahead": AheadState(512, 3010)},
    "all read": {"ahead": AheadState(2010, 2010), "has_text": True},
    "reading ahead, paused": {
        "ahead": AheadState(1850, 2010),
        "drafting": "paused (11 % accepted, needs 22 %)",
    },
    "lossy": {"drafting": "▲ lossy"},
    "editing": {"edited": Turn("user", "")},
    "typed with a queue": {"is_answering": True, "queued": 2, "has_text": True},
    "typed after a stop": {"queued": 2, "has_text": True},
    "typed without a model": {"status": Status(Phase.FAILED), "has_text": True},
    "question selected": {"selected": "user"},
    "a version selected": {"selected": "user", "has_versions": True},
    "attachment selected": {"selected": "attachment"},
    "instructions selected": {"selected": "instructions"},
    "welcome": {"selected": "welcome"},
    "in the panel": {"selected": "panel"},
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
        prompt.area.begin_edit(PromptText("Which words did you change? As JSON."), 3)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 12), (40, 20)])
async def test_each_title(size: tuple[int, int], folder: Path, pytestconfig: pytest.Config) -> None:
    (folder / "data.csv").write_text("1 2 3 " * 1000)
    (folder / "report.md").write_text("word " * 20)
    (folder / "picture.bin").write_bytes(b"\x7fELF\x02\0\0")
    shown: list[str] = []

    async def note(prompt: Prompting, what: str) -> None:
        lines = [line for line in await prompt.lines() if line][1:]
        shown.append("\n".join([f"# {what}", *lines]))

    async with prompting(size) as prompt:
        prompt.store.status = ready(context_size=3000)
        for text in ("And check @nots.md", "/foo", "/modle qwen"):
            prompt.area.write(text)
            await prompt.press("enter")
            await note(prompt, text)
        for text, expected in (
            ("see @picture.bin", "is not text"),
            ("@report.md", "20 tokens"),
            ("@data.csv", "in passages"),
            ("word " * 150, "150 tokens"),
            ("@report.md @data.csv", "in passages"),
        ):
            prompt.area.write(text)
            await prompt.until(lambda expected=expected: expected in prompt.title)
            await note(prompt, text[:20])
        prompt.area.take()
        await prompt.paste("a line\n" * 42)
        await prompt.until(lambda: "42" in prompt.title)
        await note(prompt, "paste")
        await prompt.press("ctrl+c", "ctrl+c")
        await note(prompt, "Ctrl+C")
        await prompt.type("/s")
        await note(prompt, "completion")
    compare_snapshot(pytestconfig, f"prompt_titles_{size[0]}x{size[1]}", "\n\n".join(shown) + "\n")


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_read_ahead_moves_nothing(size: tuple[int, int]) -> None:
    async with prompting(size) as prompt:
        prompt.store.has_text = True
        before = await prompt.lines()
        for read in (1, 99, 1850, 2010):
            prompt.store.ahead = AheadState(read, 2010)
            now = await prompt.lines()
            assert len(now) == len(before)
            changed = [row for row in range(len(now)) if now[row] != before[row]]
            assert changed in ([], [len(before) - 2])
            assert all(now[row].endswith(before[row][-17:]) for row in changed)
        prompt.store.ahead = None
        assert await prompt.lines() == before


async def test_a_long_text_that_is_not_read_says_why() -> None:
    reason = "not reading ahead: the machine is busy"
    async with prompting((80, 24)) as prompt:
        prompt.store.ahead = AheadState(0, 0, "the machine is busy")
        prompt.area.write("short.")
        assert reason not in "".join(await prompt.lines())
        prompt.area.write("word " * 100 + "end.")
        await prompt.pilot.pause()
        assert reason in "".join(await prompt.lines())
        prompt.store.ahead = AheadState(0, 0, SWITCHED_OFF)
        assert "not reading" not in "".join(await prompt.lines())


@pytest.mark.slow
async def test_a_text_is_told_with_its_files_once_it_is_known(
    prompt: Prompting, folder: Path
) -> None:
    (folder / "report.md").write_text("all I know")
    told = prompt.app.followed
    await prompt.type("see @report.md")
    await prompt.until(lambda: bool(told) and bool(told[-1].attachments))
    assert prompt.prompt.is_followed
    assert told[-1].text == "see @report.md"
    assert [one.text for one in told[-1].attachments] == ["all I know"]
    await prompt.press("ctrl+u")
    await prompt.until(lambda: not told[-1].text)
    assert told[-1].attachments == ()
    assert told[-1].at > told[-2].at


def test_a_count_that_fails_is_left_out() -> None:
    failed: Future[int] = Future()
    failed.set_exception(ValueError("no model"))
    counts = TokenCounts(lambda _: failed)
    counts.update(PromptText("word " * 200))
    assert counts.summaries(None) == []


@pytest.mark.slow
async def test_counts_go_with_their_text_even_while_the_model_is_busy(prompt: Prompting) -> None:
    waiting: list[Future[int]] = []

    def busy(_: str) -> Future[int]:
        waiting.append(Future())
        return waiting[-1]

    prompt.prompt._counts = TokenCounts(busy)
    await prompt.paste("a line\n" * 42)
    await prompt.until(lambda: prompt.title == "pasted 42 lines · …")
    await prompt.press("enter")
    await prompt.until(lambda: prompt.title == "")
    prompt.area.write("word " * 150)
    await prompt.until(lambda: len(waiting) == 2)
    prompt.area.write("word " * 200)
    waiting[1].set_result(150)
    await prompt.until(lambda: len(waiting) == 3)
    waiting[2].set_result(200)
    await prompt.until(lambda: prompt.title == "200 tokens")


async def test_two_attachments_count_as_much_as_each_does(prompt: Prompting, folder: Path) -> None:
    (folder / "one.md").write_text("word " * 20)
    (folder / "two.md").write_text("")
    prompt.area.write("@one.md")
    await prompt.until(lambda: prompt.title == "one.md · 20 tokens")
    prompt.area.write(f"@one.md @two.md {'more ' * 150}")
    await prompt.until(lambda: prompt.title == "▲ two.md is empty")
    prompt.area.write("@two.md @one.md")
    await prompt.until(lambda: prompt.title == "▲ two.md is empty")


async def test_ctrl_c_says_that_it_quits_even_after_a_fault(prompt: Prompting) -> None:
    prompt.area.show_fault("there is nothing to undo")
    assert prompt.title == "✕ there is nothing to undo"
    await prompt.press("ctrl+c")
    assert prompt.title == "Ctrl+C again quits"


async def test_a_fault_too_long_for_the_frame_has_rows_of_its_own() -> None:
    async with prompting((40, 20)) as prompt:
        prompt.area.show_fault("which setting? · Example: /set temperature 0.2")
        shown = " ".join(line.strip() for line in await prompt.lines())
        assert "✕ which setting? · Example: /set temperature 0.2" in shown
        assert prompt.title == ""
        await prompt.type("x")
        assert "✕" not in "".join(await prompt.lines())


async def test_a_doubt_is_told_again_once_something_else_was_shown(prompt: Prompting) -> None:
    prompt.area.write("see @no.md")
    await prompt.press("enter")
    prompt.area.show_fault("there is nothing to undo")
    prompt.area.clear_fault()
    await prompt.press("enter")
    assert prompt.title == "✕ no file no.md · Enter again sends your text without the file"
    await prompt.press("enter")
    assert prompt.submitted == ["see @no.md"]


async def test_a_command_that_waits_for_its_argument_says_which(prompt: Prompting) -> None:
    await prompt.type("/expo")
    await prompt.press("enter")
    assert prompt.text == "/export "
    assert prompt.title == "/export FILE · Export this chat to a file, .md or .json"


async def test_no_list_opens_for_a_command_that_failed(prompt: Prompting) -> None:
    prompt.area.write("/undo")
    prompt.area.show_fault("there is nothing to undo")
    await prompt.pilot.pause()
    assert prompt.store.completing == ""
    assert "there is nothing to undo" in prompt.title
