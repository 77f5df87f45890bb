"""Settings in the app: for one chat, for all of it, kept in the file, and taken back by Escape."""

from contextlib import closing

import pytest
from textual.widgets import Button, Input, Select, Static

from app.history import History
from app.paths import Paths
from app.settings import file
from app.tui.screens.setting_field import SettingField
from app.tui.screens.settings_screen import SettingsScreen
from app.tui.status.panel import Panel
from tests.app.tui.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

WORDS = ["one ", "two ", "three "]
PRESETS = '[presets.exact]\nsystem = "Be exact."\ntop_k = 3\n\n[presets.warm]\ntemperature = 1.5\n'


def write(text: str) -> None:
    path = Paths.of_this_user().settings
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def kept() -> dict[str, object]:
    return file.read(Paths.of_this_user().settings)


async def opened(chat: Chat) -> SettingsScreen:
    await chat.pilot.press("f8")
    await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
    screen = chat.app.screen
    assert isinstance(screen, SettingsScreen)
    await chat.until(lambda: screen.focused is not None)
    return screen


async def left(chat: Chat) -> None:
    await chat.until(lambda: chat.app.screen is chat.screen)


def field(screen: SettingsScreen, name: str) -> SettingField:
    return screen.query_one(f"#field-{name}", SettingField)


def told(chat: Chat) -> str:
    return " ".join(str(one.message) for one in chat.app._notifications)


async def test_values_for_this_chat_by_keyboard_alone(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await opened(chat)
        await chat.pilot.press(*"Be kind.", "tab", *"0.5", "tab", "7", "enter")
        await left(chat)
        assert chat.view.dialogue.system == "Be kind."
        assert (chat.view.answering.sampling.temperature, chat.view.answering.sampling.top_k) == (
            0.5,
            7,
        )
        await chat.ask("hello")
        assert chat.view.last_answer is not None
        assert chat.view.last_answer.request.settings.top_k == 7
        assert not Paths.of_this_user().settings.exists()


async def test_by_mouse_alone(chatting: Chatting) -> None:
    write(PRESETS)
    async with chatting(ScriptedModel(WORDS), size=(80, 24)) as chat:
        screen = await opened(chat)
        await chat.pilot.click("#preset Select")
        await chat.until(lambda: screen.query_one("#preset Select", Select).expanded)
        await chat.pilot.click("#preset SelectOverlay", offset=(3, 1))
        await chat.until(lambda: field(screen, "top_k").text == "3")
        await chat.pilot.click("#use")
        await left(chat)
        assert chat.view.dialogue.own == {"top_k": 3, "preset": "exact"}
        assert chat.view.dialogue.system == "Be exact."


async def test_every_field_and_button_can_be_reached_on_a_small_screen(
    chatting: Chatting,
) -> None:
    async with chatting(ScriptedModel(WORDS), size=(40, 20)) as chat:
        screen = await opened(chat)
        for widget in screen.query("Input, Select, TextArea, Button"):
            widget.focus(scroll_visible=True)
            await chat.until(
                lambda widget=widget: screen.find_widget(widget).visible_region.area > 0
            )
            assert screen.find_widget(widget).region.right <= 40
        for button in screen.query(Button):
            assert screen.find_widget(button).visible_region.width == button.size.width


async def test_what_cannot_be_used_is_told_at_its_field(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        screen = await opened(chat)
        field(screen, "temperature").text = "hot"
        field(screen, "min_p").text = "7"
        field(screen, "draft").text = "lookup,off"
        await chat.pilot.press("ctrl+s")
        await chat.pilot.pause()
        assert chat.app.screen is screen
        faults = {
            one.key.name: str(one.query_one(".fault", Static).content)
            for one in screen.query(SettingField)
            if one.query_one(".fault").display
        }
        assert faults.keys() == {"temperature", "min_p", "draft"}
        assert "number" in faults["temperature"]
        assert "at most 1" in faults["min_p"]
        assert not Paths.of_this_user().settings.exists()
        field(screen, "temperature").text = "0.1"
        field(screen, "min_p").text = ""
        field(screen, "draft").text = "off"
        await chat.pilot.press("ctrl+s")
        await left(chat)
        assert kept() == {"temperature": 0.1}


async def test_a_fault_goes_when_its_field_changes_and_the_first_one_has_the_focus(
    chatting: Chatting,
) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        screen = await opened(chat)
        field(screen, "temperature").text = "hot"
        field(screen, "min_p").text = "7"
        await chat.pilot.pause()
        await chat.pilot.press("ctrl+s")
        first = field(screen, "temperature")
        await chat.until(lambda: first.query_one(".fault").display)
        await chat.pilot.pause()
        assert screen.focused is first.query_one(Input)
        await chat.pilot.press("1")
        await chat.until(lambda: not first.query_one(".fault").display)
        assert field(screen, "min_p").query_one(".fault").display
        assert not str(screen.query_one("#fault", Static).content)


async def test_an_empty_drafter_is_the_automatic_one(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        screen = await opened(chat)
        field(screen, "draft").text = ""
        await chat.pilot.press("ctrl+s")
        await left(chat)
        assert kept() == {"draft": "auto"}
        await chat.until(lambda: chat.app.engine.draft == "auto")


async def test_hints_are_whole_at_eighty_columns(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS), size=(80, 24)) as chat:
        screen = await opened(chat)
        for one in screen.query(Input):
            assert len(one.placeholder) < one.content_region.width, one.placeholder


async def test_saved_as_defaults_they_hold_in_the_next_app(chatting: Chatting) -> None:
    write("# mine\ntop_k = 9 # few\n")
    async with chatting(ScriptedModel(WORDS)) as chat:
        screen = await opened(chat)
        field(screen, "theme").query_one(Select).value = "nord"
        field(screen, "panel").query_one(Select).value = "shown"
        field(screen, "enter_sends").query_one(Select).value = "false"
        field(screen, "animations").query_one(Select).value = "false"
        field(screen, "model").text = "demo"
        await chat.pilot.click("#save")
        await left(chat)
        assert chat.screen.query_one(Panel).display
        assert not chat.prompt.enter_sends
    assert "# mine\ntop_k = 9 # few\n" in Paths.of_this_user().settings.read_text("utf-8")
    assert kept() == {
        "top_k": 9, "theme": "nord", "panel": "shown", "enter_sends": False, "animations": False,
        "model": "demo",
    }  # fmt: skip
    async with chatting(ScriptedModel(WORDS)) as chat:
        assert chat.app.theme == "nord"
        assert chat.app.animation_level == "none"
        assert not chat.prompt.cursor_blink
        assert chat.screen.query_one(Panel).display
        chat.prompt.text = "hello"
        await chat.pilot.press("end", "enter")
        assert chat.prompt.text == "hello\n"
        await chat.pilot.press("ctrl+j")
        await chat.until(lambda: len(chat.texts) == 2)


async def test_escape_changes_nothing_and_takes_the_theme_back(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        before = chat.app.theme
        screen = await opened(chat)
        field(screen, "theme").query_one(Select).value = "gruvbox"
        await chat.until(lambda: chat.app.theme == "gruvbox")
        field(screen, "top_k").text = "2"
        await chat.pilot.press("escape")
        await left(chat)
        assert chat.app.theme == before
        assert chat.view.answering.sampling.top_k != 2
        assert not Paths.of_this_user().settings.exists()


async def test_another_model_is_loaded(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        screen = await opened(chat)
        field(screen, "model").query_one(Input).value = "demo"
        await chat.pilot.click("#use")
        await left(chat)
        await chat.until(lambda: chat.app.engine.options.model == "demo")
        assert not Paths.of_this_user().settings.exists()


async def test_a_file_broken_meanwhile_is_left_alone_and_told(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        screen = await opened(chat)
        write("oops\n")
        field(screen, "top_k").text = "2"
        await chat.pilot.press("ctrl+s")
        await chat.pilot.pause()
        assert "config.toml" in str(screen.query_one("#fault", Static).content)
        assert Paths.of_this_user().settings.read_text("utf-8") == "oops\n"


async def test_a_chat_is_resumed_with_its_own_settings(chatting: Chatting) -> None:
    write(PRESETS)
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.say("/preset exact")
        await chat.say("/set temperature 0.25")
        await chat.ask("hello")
        first = chat.view.dialogue.chat
        await chat.say("/new")
        await chat.say("/preset off")
        await chat.ask("again")
        assert chat.view.dialogue.own == {}
        other = chat.view.dialogue.fresh()
        assert first is not None
        other.open(first)
        await chat.view.open(other)
        assert chat.view.answering.sampling.top_k == 3
        assert chat.view.answering.sampling.temperature == 0.25
        assert chat.view.dialogue.system == "Be exact."
        screen = await opened(chat)
        assert screen.query_one("#preset Select", Select).value == "exact"
        assert field(screen, "temperature").text == "0.25"


async def test_damaged_settings_of_a_chat_are_left_out(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("hello")
        number = chat.view.dialogue.chat
        assert number is not None
        with closing(History.open(Paths.of_this_user().history)) as history:
            history.set_settings(number, "{damaged")
        dialogue = chat.view.dialogue.fresh()
        dialogue.open(number)
        await chat.view.open(dialogue)
        assert chat.view.dialogue.own == {}
        await chat.ask("and again")


REFUSED = [
    ("/set temprature 1", "nearest: temperature"),
    ("/set temperature hot", "a number"),
    ("/set temperature 5000", "at most 100"),
    ("/set ctx 100", "when specchat starts"),
    ("/set theme nrod", "nearest: nord"),
    ("/set panel", "panel"),
    ("/set", "temperature"),
    ("/theme nrod", "nearest: nord"),
    ("/preset exat", "nearest: exact"),
    ("/preset", "exact, warm"),
]


async def test_a_command_that_cannot_be_done_says_why(chatting: Chatting) -> None:
    write(PRESETS)
    async with chatting(ScriptedModel(WORDS)) as chat:
        before = chat.app.theme
        for line, expected in REFUSED:
            chat.app.clear_notifications()
            await chat.say(line)
            if " " not in line:  # the first Enter completes the command
                await chat.pilot.press("enter")
            await chat.until(lambda expected=expected: expected in told(chat))
        assert chat.view.dialogue.own == {}
        assert chat.app.theme == before


async def test_commands_that_set(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        for line in ("/set top_p 0.5", "/set max_tokens 2", "/set panel shown", "/theme nord"):
            await chat.say(line)
        await chat.say("/set system Be kind.")
        await chat.until(lambda: chat.view.dialogue.system == "Be kind.")
        assert chat.view.dialogue.own == {"top_p": 0.5, "max_tokens": 2}
        assert chat.screen.query_one(Panel).display
        assert chat.app.theme == "nord"
        await chat.ask("hello")
        assert "cut at the longest" in chat.view.transcript.messages[1].ending
        await chat.say("/set top_p")
        await chat.until(lambda: "top_p" not in chat.view.dialogue.own)


async def test_an_unknown_theme_is_told_and_the_usual_one_used(chatting: Chatting) -> None:
    write('theme = "nrod"\n')
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.until(lambda: "nearest: nord" in told(chat))
        assert chat.app.theme in chat.app.available_themes


async def test_every_theme_can_be_chosen(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        for theme in chat.app.available_themes:
            await chat.screen.action_perform("theme", theme)
            assert chat.app.theme == theme
        assert told(chat) == ""


async def test_without_colours_nothing_is_coloured(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with chatting(ScriptedModel(WORDS)) as chat:
        await opened(chat)
        await chat.pilot.pause()
        colours = {
            colour.triplet
            for line in chat.app.screen._compositor.render_strips()
            for segment in line
            if segment.style is not None
            for colour in (segment.style.color, segment.style.bgcolor)
            if colour is not None and colour.triplet is not None
        }
        assert colours
        assert all(max(colour) - min(colour) <= 1 for colour in colours), colours


async def test_a_lossy_rule_is_warned_of_once_and_then_in_the_figures(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.say("/set lossy eers")
        await chat.until(lambda: "there are typical, ears, lenient and off" in told(chat))
        chat.prompt.clear()
        await chat.say("/set temperature 1")
        await chat.say("/set lossy ears:0.2")
        await chat.until(lambda: chat.view.answering.sampling.lossy_in_effect is not None)
        assert chat.view.dialogue.own["lossy"] == "ears:0.2"
        chat.app.clear_notifications()
        await chat.ask("hello")
        assert "answers may be lossy (ears 0.2)" in told(chat)
        chat.app.clear_notifications()
        await chat.ask("hello again")
        assert "lossy" not in told(chat)
        # Nothing was drafted, so that the answer is the model's own.
        assert chat.view.last_answer is not None
        assert chat.view.last_answer.metrics is not None
        assert chat.view.last_answer.metrics.lossy == ""
