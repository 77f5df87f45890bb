"""Every screen with hostile text in every place: shown as it is, never obeyed, never clickable."""

from contextlib import closing
from pathlib import Path

import pyperclip
import pytest
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.strip import Strip
from textual.widgets import Static

from app.engine.status import Phase
from app.history import History
from app.paths import Paths
from app.tui.chat import answer as answer_view
from app.tui.chat.answer import GrowingMarkdown
from app.tui.screens.chats import ChatsScreen
from app.tui.screens.models import ModelsScreen
from app.tui.screens.settings import SettingsScreen
from app.tui.terminal import PrintableLines, copy
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.hostile import HONEST, MARKUP, TEXTS, UNENCODABLE
from tests.fixtures.scripted import ScriptedModel

CLICK = "[@click=app.quit]PWN[/]"
NAME = f"{CLICK}\x1b]0;PWN\x07\x9b2J\u202e\nPWN"
SHOWN = f"{CLICK}␛]0;PWN␇�2J�␊PWN"


def painted(app: App[None]) -> str:
    """The screen's text, once nothing on it can drive the terminal or do anything by a click."""
    lines: list[str] = []
    for strip in app.screen._compositor.render_strips():
        for text, style, _ in strip:
            assert text.isprintable() or set(text) & {*"".join(HONEST)}, text
            if style is not None:
                assert style.link is None
                assert "quit" not in str(style.meta.get("@click", ""))
        lines.append(strip.text)
    return "\n".join(lines)


async def shows(chat: Chat, text: str = SHOWN) -> None:
    await chat.until(lambda: text in painted(chat.app))


async def test_toasts(chatting: Chatting) -> None:
    """Screens and widgets ask for markup, as Textual does where nobody says otherwise."""
    async with chatting(ScriptedModel(["a"]), (140, 40), keeps=False, toasts=True) as chat:
        for markup in MARKUP:
            chat.screen.notify(f"about {markup}")
            chat.prompt.notify(f"\x1b[2J{markup}", severity="error")
        for markup in MARKUP:
            await shows(chat, f"about {markup}")
            await shows(chat, f"␛[2J{markup}")


async def test_errors(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"]), (140, 30), toasts=True) as chat:
        await chat.until(lambda: chat.app.engine.status.phase is Phase.READY)
        await chat.say(f"/draft {CLICK}\x1b]0;.gguf")
        await shows(chat, f"{CLICK}␛]0;.gguf")
        await chat.say(f"/rename {CLICK}\x9b2J")
        await shows(chat, f"{CLICK}�2J")


@pytest.mark.slow
async def test_chats(chatting: Chatting) -> None:
    with closing(History.open(Paths.of_this_user().history)) as history:
        number = history.create("demo")
        history.add(number, "user", f"{NAME}\r\n{CLICK}")
        history.add(number, "assistant", f"{CLICK} \x1b]8;;file:///PWN\x07PWN", NAME)
        history.rename(number, NAME)
    async with chatting(ScriptedModel(["a"]), size=(140, 30)) as chat:
        await chat.pilot.press("ctrl+o")
        await chat.until(lambda: isinstance(chat.app.screen, ChatsScreen))
        await shows(chat)
        await chat.pilot.press("f2")
        await shows(chat)
        await chat.pilot.press("escape", "down", "enter")
        await chat.until(lambda: chat.app.screen is chat.screen and len(chat.texts) == 2)
        await shows(chat, f"{CLICK}␛]0;PWN␇�2J�")
        await shows(chat, f"{CLICK} ␛]8;;file:///PWN␇PWN")


@pytest.mark.slow
async def test_models_and_presets(chatting: Chatting, tmp_path: Path) -> None:
    paths = Paths.of_this_user()
    paths.models.mkdir(parents=True)
    name = NAME.replace("/", "")
    (paths.models / f"{name}.gguf").write_bytes(b"x" * 5)
    paths.settings.parent.mkdir(parents=True)
    paths.settings.write_text(f'[presets."{CLICK}"]\ntop_k = 3\n', encoding="utf-8")
    async with chatting(ScriptedModel(["a"]), size=(140, 40)) as chat:
        await chat.until(lambda: chat.app.engine.status.phase is Phase.READY)
        await chat.pilot.press("ctrl+l")
        await chat.until(lambda: isinstance(chat.app.screen, ModelsScreen))
        await shows(chat, CLICK[:12])  # the column cuts a long name
        await chat.pilot.press("escape", "f8")
        await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
        await chat.pilot.press("down", "down", "down", "enter")
        await shows(chat, CLICK)


async def test_files_and_the_prompt(
    chatting: Chatting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = NAME.replace("/", "")
    (tmp_path / name).write_text("PWN\x1b[2J")
    monkeypatch.chdir(tmp_path)
    async with chatting(ScriptedModel(["a"]), size=(140, 30)) as chat:
        await chat.until(lambda: chat.app.engine.status.phase is Phase.READY)
        chat.prompt.focus()
        await chat.pilot.press("@")
        await shows(chat, SHOWN.replace("/", ""))
        chat.prompt.text = f"{CLICK}\x1b]0;PWN\x07\x9b2J\u202e PWN"
        await shows(chat, f"{CLICK}␛]0;PWN␇�2J� PWN")
        assert "\x1b]0;PWN" in chat.prompt.text  # it is what is sent


@pytest.mark.slow
async def test_answers_and_what_comes_in_pieces(chatting: Chatting) -> None:
    pieces = [f"{text}\n\n" for text in (*TEXTS, *MARKUP)]
    halves = [
        "\x1b",
        "]52;c;UFdO",
        "\x07",
        "PWN\x1b",
        "c",
        "```\x1b]0;PWN\n\x1b[2Jcode\n```\n",
        "\x1b",
    ]
    async with chatting(ScriptedModel([*pieces, *halves]), size=(100, 200)) as chat:
        await chat.ask("hi")
        await shows(chat, "␛]52;c;UFdO␇")
        await shows(chat, "␛[2Jcode")
        assert chat.texts[-1][1] == "".join([*pieces, *halves])  # kept as it was said


@pytest.mark.parametrize("address", ["file:///PWN", "javascript:PWN", "https://a.example/b"])
async def test_a_link_in_an_answer_is_copied_and_never_opened(
    chatting: Chatting, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    copied: list[str] = []
    monkeypatch.setattr(App, "open_url", lambda _app, url, **_: opened.append(url))
    monkeypatch.setattr(
        answer_view, "copy", lambda _app, text, _what: copied.append(text) or "copied"
    )
    async with chatting(ScriptedModel([f"[PWN](<{address}>)"]), keeps=False) as chat:
        await chat.ask("hi")
        await shows(chat, "PWN")
        painted(chat.app)
        chat.screen.query_one(GrowingMarkdown).action_link(address)
        await chat.until(lambda: bool(copied))
    assert (opened, copied) == ([], [address])


class Careless(Static):
    """A widget that paints what it is given, past everything that makes text printable."""

    def render_line(self, y: int) -> Strip:
        link = Style(link="file:///PWN\x1b\\")
        return Strip([Segment(f"\x1b]0;PWN{y}\x07\u202e\ud800\n\tPWN", link)])


@pytest.mark.slow
async def test_whatever_a_widget_paints_passes_the_filter(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(ScriptedModel(["a"]), keeps=False) as chat:
        await chat.screen.mount(Careless())
        await shows(chat, "]0;PWN0�PWN")
        monkeypatch.setattr(PrintableLines, "apply", lambda _self, segments, _background: segments)
        chat.screen.query_one(Careless).styles.background = "red"
        with pytest.raises(AssertionError):
            await shows(chat, "never")


@pytest.mark.parametrize("text", [TEXTS[0], *UNENCODABLE])
async def test_copying(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clipboard gets what was said; what no encoding has is replaced."""
    copied: list[str] = []
    monkeypatch.setattr(pyperclip, "copy", copied.append)
    async with App[None]().run_test() as pilot:
        copy(pilot.app, text, "it")
    assert copied == [text.encode(errors="replace").decode()]
