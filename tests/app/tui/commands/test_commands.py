"""Slash commands and keys that cannot do what they are for: why is told, nothing typed is lost."""

from contextlib import nullcontext
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, cast

import pytest
from textual.content import Content

from app.actions import ACTIONS, unknown_command
from app.paths import Paths
from app.tui.chat_screen import ChatScreen
from app.tui.commands.app import editor_command
from app.tui.lists import PickScreen
from app.tui.prompt.completion import Completion
from app.tui.screens.settings import SettingsScreen
from decoding.constraint.grammar import Grammar, GrammarKind
from tests.app.tui.conftest import WORDS, Chat, Chatting
from tests.fixtures import scripted
from tests.fixtures.scripted import ScriptedContext, ScriptedModel

if TYPE_CHECKING:
    from app.engine.answer import Answer


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("/wrong", "/wrong"),
        ("/wrong and more", "/wrong"),
        ("/wrong\nand more lines", "/wrong"),
        ("/New", None),
        ("/usr/bin is full", None),
        ("/2 is a half", None),
        ("/", None),
        ("either/or", None),
    ],
)
def test_what_is_meant_as_a_command(text: str, word: str | None) -> None:
    assert unknown_command(text) == word


async def test_every_registered_action_has_a_command(chat: Chat) -> None:
    assert all(callable(getattr(chat.screen.commands, action.name)) for action in ACTIONS)


async def test_a_wrong_command_of_several_lines_is_not_sent(chat: Chat) -> None:
    await chat.say("/wrong\nwith more lines")
    await chat.until(lambda: "/wrong" in chat.prompt.fault)
    assert chat.texts == []
    assert chat.prompt.text == "/wrong\nwith more lines"


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["/set temp 1", "/theme nrod", "/preset exat", "/draft ,", "/set draft ,"]
)
async def test_a_command_that_failed_stays_in_the_prompt(chat: Chat, line: str) -> None:
    await chat.say(line)
    await chat.until(lambda: bool(chat.prompt.fault))
    assert chat.prompt.text == line
    assert chat.prompt.cursor_location == (0, len(line))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/set temp 1", "Nearest: temperature"),
        ("/set top 1", "Nearest: top_k, top_p"),
        ("/set foo 1", "no setting 'foo'. Known: ahead, ahead_waste, "),
        (
            "/set hots 1",
            "no setting 'hots'. Known: ahead, ahead_waste, ",
        ),  # nor host
        ("/think maybe", "thinking cannot be 'maybe'. Known: auto, off, on, "),
        ("/model nonsense", "no model nonsense · Ctrl+L lists them; you can also give"),
        ("/draft nonsense", "no drafter nonsense · F3 lists the drafters"),
    ],
)
async def test_an_unknown_name_leads_to_what_lists_them_in_the_app(
    chat: Chat, line: str, told: str
) -> None:
    await chat.say(line)
    await chat.until(lambda: told in chat.prompt.fault)
    assert "specchat" not in chat.prompt.fault


async def test_brackets_of_commands_are_shown(chat: Chat) -> None:
    chat.prompt.focus()
    await chat.pilot.press("slash", *"model")
    completion = chat.screen.query_one(Completion)
    await chat.until(lambda: completion.display)
    prompt = completion.get_option_at_index(0).prompt
    assert isinstance(prompt, Content)
    assert prompt.plain.startswith("/model [NAME]  Choose")


async def test_instructions_stay_with_their_chat_until_they_are_off(chat: Chat) -> None:
    await chat.say("/system Be [kind].")
    await chat.until(lambda: chat.view.dialogue.system == "Be [kind].")
    await chat.say("/system")
    await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
    assert "Be [kind]." in chat.shown
    await chat.pilot.press("escape")
    await chat.until(lambda: chat.app.screen is chat.screen)
    await chat.say("/system off")
    await chat.until(lambda: chat.view.dialogue.system == "")
    await chat.pilot.press("ctrl+z")
    await chat.until(lambda: chat.view.dialogue.system == "Be [kind].")
    await chat.pilot.press("ctrl+n")
    await chat.until(lambda: chat.view.dialogue.system == "")


@pytest.mark.parametrize(
    ("key", "expected"),
    [("f9", "no question"), ("ctrl+z", "nothing to undo"), ("ctrl+r", "yet"), ("ctrl+t", "yet")],
)
async def test_keys_in_an_empty_chat_say_why(chat: Chat, key: str, expected: str) -> None:
    await chat.ready()
    await chat.pilot.press(key)
    await chat.until(lambda: expected in chat.prompt.fault)


async def test_a_race_in_mid_answer_says_that_it_is_at_work(chatting: Chatting) -> None:
    gate = Event()
    async with chatting(ScriptedModel(WORDS, gate=gate)) as chat:
        await chat.ready()
        await chat.say("hello")
        await chat.until(lambda: not chat.view.is_idle)
        await chat.pilot.press("f5")
        await chat.until(lambda: "in progress" in chat.prompt.fault)
        assert len(chat.view.dialogue.turns) == 2
        gate.set()
        await chat.until(lambda: chat.view.is_idle and not chat.prompt.fault)


async def test_one_code_block_is_one(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["```\n", "print(1)\n", "```\n"])) as chat:
        await chat.ask("hello")
        await chat.say("/code 2")
        await chat.until(lambda: "has 1 code block" in chat.prompt.fault)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "toast"),
    [
        ("/set temperature 0.2", "Temperature: 0.2"),
        ("/think off", "scripted has no thinking mode; other models have one."),
        ("/set think_budget 1,500", "Thinking budget: 1,500"),
        ("/set temperature", "Temperature: the default"),
        ("/context 2048", "Context size: 2048"),
        ("/theme specchat-light", "Theme: specchat-light"),
        ("/system off", "No instructions."),
    ],
)
async def test_a_command_says_what_is_now_set(chatting: Chatting, line: str, toast: str) -> None:
    async with chatting(ScriptedModel(WORDS), toasts=True) as chat:
        await chat.ready()
        await chat.say(line)
        await chat.until(lambda: toast in chat.toasts)
        assert chat.prompt.fault == ""


async def test_an_error_goes_once_something_else_was_done(chat: Chat) -> None:
    await chat.say("/set temperature 0.2")
    await chat.until(lambda: bool(chat.view.dialogue.own))
    await chat.pilot.press("ctrl+z", "ctrl+z")
    await chat.until(lambda: "nothing to undo" in chat.prompt.fault)
    await chat.pilot.press("ctrl+y")
    await chat.until(lambda: bool(chat.view.dialogue.own))
    assert chat.prompt.fault == ""


async def test_answers_match_a_schema_until_it_is_off(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, wrong = tmp_path / "person.json", tmp_path / "wrong.json"
    schema.write_text('{"type": "object"}', "utf-8")
    wrong.write_text('{"type": "text"}', "utf-8")
    await chat.say(f"/schema {wrong}")
    await chat.until(lambda: "Invalid type" in chat.prompt.fault)
    assert chat.view.grammar is None
    await chat.say(f"/schema {schema}")
    await chat.until("schema: person.json")
    expected = Grammar(GrammarKind.JSON_SCHEMA, '{"type": "object"}')
    assert chat.view.grammar == expected
    asked: list[Answer] = []
    monkeypatch.setattr(chat.app.engine, "begin", asked.append)
    await chat.say("Who is it?")
    await chat.until(lambda: bool(asked))
    assert asked[0].request.options.grammar == expected
    asked[0].finish()
    await chat.say("/schema off")
    await chat.until(lambda: "schema: person.json" not in chat.shown)
    assert chat.view.grammar is None


@pytest.mark.parametrize("has_schema", [False, True])
async def test_what_cannot_grow_says_so(
    chatting: Chatting, has_schema: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A complete answer is continued with nothing: Ctrl+T did nothing, without a word."""
    async with chatting(ScriptedModel(WORDS), toasts=True) as chat:
        await chat.ready()
        await chat.ask("hello")
        ending = chat.view.dialogue.turns[1].ending
        if has_schema:
            chat.view.grammar = Grammar(GrammarKind.JSON_SCHEMA, "{}")
            monkeypatch.setattr(chat.app.engine, "begin", lambda answer: answer.finish())
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: "Nothing was added: " in chat.toasts)
        assert ("it matches the schema" in chat.toasts) is has_schema
        assert chat.view.dialogue.turns[1].ending == ending


async def test_a_schema_is_taken_back_before_what_was_done_earlier(
    chat: Chat, tmp_path: Path
) -> None:
    schema = tmp_path / "person.json"
    schema.write_text('{"type": "object"}', "utf-8")
    await chat.say("/set temperature 0.3")
    await chat.say(f"/schema {schema}")
    await chat.say("/schema off")
    await chat.until(lambda: chat.view.grammar is None)
    await chat.pilot.press("ctrl+z")
    await chat.until("schema: person.json")
    assert chat.view.grammar == Grammar(GrammarKind.JSON_SCHEMA, '{"type": "object"}')
    await chat.pilot.press("ctrl+z")
    await chat.until(lambda: "schema: person.json" not in chat.shown)
    assert chat.view.grammar is None
    assert chat.view.dialogue.own == {"temperature": 0.3}


@pytest.mark.slow
async def test_it_lists_our_actions_alone_with_keys_as_elsewhere(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(["a"])) as chat:
        await chat.pilot.press("ctrl+p", *"add another")
        await chat.until(lambda: "Add another answer" in chat.shown)
        assert "Ctrl+R  /again" in chat.shown
        assert "Choose a drafter" not in chat.shown
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.app.screen is chat.screen)


@pytest.mark.slow
async def test_a_theme_is_seen_while_it_is_looked_at_and_kept_if_it_is_picked(
    chatting: Chatting,
) -> None:
    async with chatting(ScriptedModel(["a"])) as chat:
        await chat.say("/theme")
        await chat.until(lambda: "● specchat-dark" in chat.shown)
        await chat.pilot.press("down")
        await chat.until(lambda: chat.app.theme == "specchat-light")
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.theme == "specchat-dark")
        await chat.say("/theme")
        await chat.pilot.press(*"nord", "enter")
        await chat.until(lambda: chat.screen.store.preferences.theme == "nord")
        await chat.until(lambda: chat.app.theme == "nord")


@pytest.mark.slow
async def test_the_frame_follows_a_drafter_chosen_after_an_answer(chatting: Chatting) -> None:
    """The last answer's figures are of the drafters that it had."""
    async with chatting(ScriptedModel(WORDS * 200, rate=300.0)) as chat:
        await chat.ready()
        await chat.say("/draft lookup")
        await built(chat, "lookup")
        await chat.say("go on")
        await chat.until(lambda: len(chat.texts) == 2 and len(chat.texts[1][1]) > 50)
        await chat.say("/draft off")
        await built(chat)
        await chat.pilot.press("escape")
        await chat.idle()
        await chat.until("drafting: off")
        await chat.say("/draft lookup")
        await built(chat, "lookup")
        await chat.until("drafting: lookup")


async def test_a_drafter_is_taken_back_before_what_was_done_earlier(chat: Chat) -> None:
    await chat.ready()
    await chat.say("/set temperature 0.3")
    await chat.say("/draft lookup")
    await built(chat, "lookup")
    await chat.say("/draft lookup")  # which changes nothing
    await chat.pilot.press("ctrl+z")
    await chat.until(lambda: chat.app.engine.draft == "off")
    await built(chat)
    assert chat.view.dialogue.own == {"temperature": 0.3}
    await chat.pilot.press("ctrl+y")
    await built(chat, "lookup")


async def built(chat: Chat, *drafters: str) -> None:
    """Wait until the model has these drafters."""

    def holds() -> bool:
        loaded = chat.app.engine.status.loaded
        return loaded is not None and loaded.drafters == drafters

    await chat.until(holds)


class Late(ScriptedModel):
    """A model that is loading until its gate opens."""

    def open(self, n_ctx: int, *, drafts: bool = True, sequences: int = 1) -> ScriptedContext:
        assert self.gate is not None
        self.gate.wait(60)
        return super().open(n_ctx)


@pytest.mark.slow
async def test_the_model_in_use_goes_on_answering(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS * 400, rate=300.0), toasts=True) as chat:
        await chat.ready()
        loaded = chat.app.engine.status.loaded
        await chat.say("go on")
        await chat.until(lambda: len(chat.texts) == 2 and bool(chat.texts[1][1]))
        await chat.say(f"/model {scripted.__file__}")
        await chat.until(lambda: "scripted.py is loaded already." in chat.toasts)
        said = len(chat.texts[1][1])
        await chat.until(lambda: len(chat.texts[1][1]) > said)
        assert chat.app.engine.status.loaded is loaded


@pytest.mark.slow
@pytest.mark.parametrize("key", ["ctrl+r", "ctrl+t", "f5"])
async def test_what_needs_a_model_says_that_it_is_loading(chatting: Chatting, key: str) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("hello")
    async with chatting(Late(WORDS, gate=Event()), continues=True) as chat:
        await chat.until(lambda: len(chat.texts) == 2)
        await chat.pilot.press(key)
        await chat.until("the model is still loading")
        assert chat.app.screen is chat.screen


@pytest.mark.slow
async def test_a_queue_that_is_sent_while_the_model_loads_goes_with_it(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS * 400, rate=300.0)) as chat:
        await chat.say("first")
        await chat.say("second")
        await chat.until(lambda: len(chat.texts) == 2 and bool(chat.texts[1][1]))
        await chat.pilot.press("escape")
        await chat.idle()
    gate = Event()
    async with chatting(Late(WORDS, gate=gate), continues=True) as chat:
        await chat.until("queued · 1")
        chat.prompt.focus()
        await chat.pilot.press("enter")
        await chat.until("waiting for a model")
        gate.set()
        await chat.until(lambda: len(chat.texts) == 4 and chat.view.is_idle)
        assert chat.texts[2] == ("user", "second")


@pytest.mark.slow
async def test_continuing_in_mid_answer_says_that_it_is_in_progress(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS * 400, rate=300.0)) as chat:
        await chat.say("go on")
        await chat.until(lambda: len(chat.texts) == 2 and bool(chat.texts[1][1]))
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: "an answer is in progress" in chat.prompt.fault)


NOTEPAD = r"C:\Program Files\Notepad++\notepad++.exe"


@pytest.mark.parametrize(
    ("on_windows", "editor", "words"),
    [
        (True, r"C:\Tools\new\vim.exe", [r"C:\Tools\new\vim.exe"]),
        (True, rf'"{NOTEPAD}" -multiInst', [NOTEPAD, "-multiInst"]),
        (True, f"'{NOTEPAD}' -n '{NOTEPAD}'", [NOTEPAD, "-n", NOTEPAD]),
        (True, r"\\server\share\ed.exe --wait", [r"\\server\share\ed.exe", "--wait"]),
        (True, "no-such-editor #1 --wait", ["no-such-editor", "#1", "--wait"]),
        (False, r"/opt/my\ editor/ed -n", ["/opt/my editor/ed", "-n"]),
        (False, "'/opt/my editor/ed' -n", ["/opt/my editor/ed", "-n"]),
        (False, "no-such-editor --wait", ["no-such-editor", "--wait"]),
    ],
)
def test_the_words_of_an_editor(on_windows: bool, editor: str, words: list[str]) -> None:
    assert editor_command(editor, on_windows=on_windows) == words


@pytest.mark.parametrize("on_windows", [False, True])
def test_a_path_with_spaces_needs_no_quotes(tmp_path: Path, on_windows: bool) -> None:
    editor = tmp_path / "my editor"
    editor.touch()
    assert editor_command(str(editor), on_windows=on_windows) == [str(editor)]


@pytest.mark.parametrize("editor", ["  ", "'open"])
def test_no_command_at_all_is_an_error(editor: str) -> None:
    with pytest.raises(ValueError, match=r"quotation|unpack"):
        editor_command(editor)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("/race foo", "no drafter foo"),
        ("/race 124m", "gpt2-124m is not on this machine"),
        ("/rename ", "which title?"),
    ],
)
async def test_what_a_command_cannot_do_is_told_at_once(
    chatting: Chatting, typed: str, said: str
) -> None:
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ask("hello")
        title = chat.view.dialogue.title
        await chat.say(typed)
        await chat.until(lambda: said in chat.prompt.fault)
        assert (chat.app.screen, chat.view.dialogue.title) == (chat.screen, title)


async def test_an_editor_is_found_without_a_variable(
    chatting: Chatting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    ran: list[str] = []
    found = {"vim": "/bin/vim", "vi": "/bin/vi"}

    def run(words: list[str], **_: object) -> None:
        ran.append(words[0])
        Path(words[1]).write_text("written there", encoding="utf-8")

    monkeypatch.setattr("app.tui.commands.app.shutil.which", found.get)
    monkeypatch.setattr("app.tui.commands.app.subprocess.run", run)
    async with chatting(ScriptedModel(WORDS)) as chat:
        monkeypatch.setattr(chat.app, "suspend", nullcontext)
        await chat.pilot.press("ctrl+g")
        assert (ran, chat.prompt.text) == (["/bin/vim"], "written there")
        found.clear()
        await chat.pilot.press("ctrl+g")
        await chat.until(lambda: "no editor was found" in chat.prompt.fault)


@pytest.mark.slow
async def test_a_toast_leaves_the_panel_free(chatting: Chatting) -> None:
    async with chatting(ScriptedModel(WORDS), (120, 30), toasts=True) as chat:
        await chat.ask("hello")
        await chat.say("/theme nord")
        await chat.until(lambda: "Theme: nord" in chat.shown)
        line = next(line for line in chat.shown.splitlines() if "Theme: nord" in line)
        assert line.index("Theme: nord") + len("Theme: nord") < chat.screen.panel.region.x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "offered", "keys", "sent"),
    [
        ("/theme spec", "specchat-light", ["enter"], "/theme specchat-dark"),
        ("/set pan", "panel", ["enter", *"hid", "enter"], "/set panel hidden"),
        ("/draft lookup,ngr", "ngram", ["tab", "enter"], "/draft lookup,ngram"),
        ("/draft ", "lookup", ["down", "up", "escape"], ""),
        ("/draft ", "lookup", ["enter"], "/draft"),
        ("/schema chema.j", "", ["enter"], "/schema chema.j"),
        ("/schema a.j", "a.json", ["enter"], "/schema a.json"),
        ("/theme nord", "", ["enter"], "/theme nord"),
        ("/folder notes", "notes/", ["enter"], "/folder notes"),
        ("/folder notes", "notes/", ["tab", "enter"], "/folder notes/"),
        ("/folder no", "notes/", ["enter"], "/folder notes/"),
        ("/folder notes/", "notes/inner/", ["enter"], "/folder notes/"),
        ("/folder notes/", "notes/inner/", ["tab", "enter"], "/folder notes/inner/"),
        ("/folder off", "offers/", ["enter"], "/folder off"),
        ("/schema off", "offers/", ["enter"], "/schema off"),
        ("/set panel", "panel", ["enter"], "/set panel"),
        ("/again 2", "2b", ["enter"], "/regenerate 2"),
    ],
)
async def test_arguments_are_completed(
    chatting: Chatting,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    typed: str,
    offered: str,
    keys: list[str],
    sent: str,
) -> None:
    (tmp_path / "a.json").write_text('{"type": "string"}', encoding="utf-8")
    for folder in ("notes/inner", "offers"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("app.completion.installed_models", lambda _: ["2b"])
    async with chatting(ScriptedModel(WORDS)) as chat:
        await chat.ready()
        picked: list[str] = []

        async def perform(_: ChatScreen, name: str, argument: str = "") -> bool:
            picked.append(f"/{name} {argument}".strip())
            return True

        monkeypatch.setattr(ChatScreen, "action_perform", perform)
        chat.prompt.text = typed
        await chat.pilot.pause(0.1)
        if offered:
            await chat.until(lambda: offered in chat.shown)
        else:
            assert not chat.screen.query_one(Completion).display
        await chat.pilot.press(*keys)
        await chat.pilot.pause()
        assert picked == ([sent] if sent else [])


def _write_prompts(**prompts: str) -> None:
    folder = Paths.of_this_user().prompts
    folder.mkdir(parents=True)
    for name, text in prompts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


@pytest.mark.slow
async def test_a_prompt_is_completed_and_sent_with_its_arguments(chat: Chat) -> None:
    _write_prompts(greet="# Greets two\n\nSay [hello] to $1 and $2.", new="never", empty="")
    await chat.ready()
    chat.prompt.focus()
    await chat.pilot.press("slash", *"gre")
    completion = chat.screen.query_one(Completion)
    await chat.until(lambda: completion.display)
    prompt = completion.get_option_at_index(0).prompt
    assert isinstance(prompt, Content)
    assert prompt.plain == "/greet  Greets two"
    await chat.pilot.press("enter", *"Ann", "space", *"Bob", "enter")
    sent = "# Greets two\n\nSay [hello] to Ann and Bob."
    await chat.until(lambda: chat.texts[:1] == [("user", sent)] and chat.view.is_idle)
    await chat.pilot.press("up")
    assert chat.prompt.text == "/greet Ann Bob"
    await chat.say("/new")
    await chat.until(lambda: chat.texts == [])
    for line, told in (("/empty that is it", "empty.md is empty"), ("/emty it", "no /emty; ")):
        await chat.say(line)
        await chat.until(lambda told=told: told in chat.prompt.fault)
        assert chat.prompt.text == line
    assert chat.texts == []


async def test_a_preset_is_picked_from_a_list_and_shown_with_its_chat(
    chat: Chat,
) -> None:
    folder = Paths.of_this_user().presets
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("temperature = [", encoding="utf-8")
    (folder / "own.toml").write_text('system = "[b]Be\\u001b kind.[/b]"', encoding="utf-8")
    await chat.ready()
    await chat.say("/preset")
    await chat.until(lambda: isinstance(chat.app.screen, PickScreen))
    await chat.pilot.press("down", "down")
    assert "[b]Be" in chat.shown
    assert "✕ cannot read" in chat.shown
    await chat.pilot.press("enter")
    await chat.until(lambda: chat.view.dialogue.own.get("preset") == "own")
    assert "preset own · instructions: [b]Be" in chat.shown
    await chat.say("/preset broken")
    await chat.until(lambda: "broken.toml: Invalid value" in chat.prompt.fault)
    await chat.ask("hello")
    again = chat.view.dialogue.fresh()
    again.open(cast("int", chat.view.dialogue.chat))
    assert again.own == {"preset": "own"}
    await chat.say("/preset off")
    await chat.until(lambda: chat.view.dialogue.own == {})
    assert chat.view.dialogue.system == ""


async def test_a_preset_loads_the_model_that_it_names_if_it_is_here(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths, loaded = Paths.of_this_user(), list[str]()
    for path, content in (
        (paths.models / "other.gguf", "GGUF"),
        (paths.presets / "big.toml", 'model = "qwen3-4b"\ntop_k = 3'),
        (paths.presets / "other.toml", 'model = "other"'),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    await chat.ready()
    monkeypatch.setattr(chat.app.engine, "load", loaded.append)
    await chat.say("/preset big")
    told = "the model qwen3-4b is not on this machine · /model qwen3-4b downloads it"
    await chat.until(lambda: told in chat.prompt.fault)
    assert chat.prompt.text == "/preset big"
    assert chat.view.dialogue.own == {}
    await chat.say("/preset other")
    await chat.until(lambda: loaded == ["other"])
    assert chat.view.dialogue.own == {"preset": "other"}
    assert chat.prompt.fault == ""
