"""Settings at every width: each changes at once in its row, and every change can be undone."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual import events

from app.dialogue.dialogue import Dialogue
from app.dialogue.settings_editor import SettingsEditor
from app.dialogue.tree import Changes
from app.settings import file
from app.settings.answering import Answering
from app.settings.catalogue import Value
from app.settings.presets import Presets
from app.tui.lists import PickScreen, RowList
from app.tui.screens.settings import SettingsScreen
from backends.base import UsageError
from decoding.sampling.distribution import SamplingSettings
from tests.fixtures.hostile import TEXTS
from tests.fixtures.small_app import Shown, compare_screen, small_app

PRESETS = {
    "exact": {"system": "Be exact.", "top_k": 3},
    "warm": {"temperature": 1.5, "model": "here"},
    "gone": {"temperature": 0.5, "model": "gone"},
}


class Target:
    """What settings are set of, without an app."""

    def __init__(self) -> None:
        self.dialogue = Dialogue(None)
        self.settings: dict[str, Value] = {
            "model": "qwen3-4b",
            "draft": "auto",
            "ctx": 8192,
            "learn": True,
            "theme": "specchat-dark",
            "panel": "auto",
            "animations": True,
            "enter_sends": True,
            "ahead": "auto",
            "ahead_waste": 60.0,
        }
        self.new_chats: tuple[Answering, str] | None = None
        self.shown = 0

    def setting(self, name: str) -> Value:
        return self.settings[name]

    @property
    def usual_context(self) -> int:
        return 8192

    def check_model(self, name: str) -> None:
        if name in ("gone", "of a file"):
            raise UsageError("the model gone is not on this machine")

    def check_setting(self, name: str, value: Value) -> None:
        if name == "ctx" and value == 77:
            raise UsageError("the context cannot be 77", "there is not enough memory")

    def use_setting(self, name: str, value: Value) -> None:
        self.settings[name] = value

    def use_defaults(self, answering: Answering, system: str) -> None:
        self.new_chats = answering, system

    def show_chat_settings(self) -> None:
        self.shown += 1


class Page(Shown):
    """The settings on the screen of a small app."""

    def __init__(self, shown: Shown, path: Path) -> None:
        super().__init__(shown.app, shown.pilot)
        self.path = path
        self.target, self.changes = Target(), Changes()
        self.answering = Answering(SamplingSettings(temperature=0.8, seed=5), 2048)
        presets = Presets(path.with_name("presets"), PRESETS)
        self.editor = SettingsEditor(self.target, self.changes, self.answering, "", path, presets)

    @property
    def dialogue(self) -> Dialogue:
        return self.target.dialogue

    @property
    def kept(self) -> dict[str, object]:
        return file.read(self.path)

    async def down(self, count: int) -> None:
        await self.press(*["down"] * count)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "config.toml"


@asynccontextmanager
async def page(
    path: Path, size: tuple[int, int] = (80, 24), system: str = ""
) -> AsyncIterator[Page]:
    async with small_app(size) as shown:
        opened = Page(shown, path)
        if system:
            opened.dialogue.set_system(system)
        await opened.open(SettingsScreen(opened.editor, opened.changes))
        yield opened


@pytest.fixture
async def shown(path: Path) -> AsyncIterator[Page]:
    async with page(path) as opened:
        yield opened


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (40, 20)])
async def test_the_settings_at_every_size(
    path: Path, size: tuple[int, int], pytestconfig: pytest.Config
) -> None:
    async with page(path, size, "Answer with the text alone.") as shown:
        await shown.press("down")
        compare_screen(shown.app, f"settings_{size[0]}x{size[1]}", pytestconfig)


@pytest.mark.parametrize("size", [(80, 24), (40, 20)])
async def test_the_list_of_presets(
    path: Path, size: tuple[int, int], pytestconfig: pytest.Config
) -> None:
    presets = Presets(path.with_name("presets"), {"a long name of a preset": {"top_k": 3}})
    rows = {name: (name, presets.about(name)) for name in presets.names()}
    async with small_app(size) as shown:
        await shown.open(PickScreen("Presets", rows, "editor"))
        compare_screen(shown.app, f"presets_{size[0]}x{size[1]}", pytestconfig)
        await shown.press("down", "enter")
        assert shown.app.returned == ["reviewer"]


@pytest.mark.slow
async def test_a_number_is_edited_in_its_row_and_undone(shown: Page) -> None:
    await shown.press("down", "enter", "ctrl+u", *"0.25", "enter")
    assert shown.dialogue.own == {"temperature": 0.25}
    assert "● Temperature    0.25" in shown.text
    assert not shown.path.exists()
    await shown.press("ctrl+z")
    assert shown.dialogue.own == {}
    await shown.press("ctrl+y")
    assert shown.dialogue.own == {"temperature": 0.25}
    await shown.press("enter", "ctrl+u", "enter")
    assert shown.dialogue.own == {}
    assert shown.target.shown == 4


@pytest.mark.slow
async def test_an_unusable_value_changes_nothing_and_is_told_below(shown: Page) -> None:
    await shown.press("down", "enter", "ctrl+u", *"hot", "enter")
    assert "✕ Temperature: 0, or a number from 0.001 to 100, such as 0.7" in shown.text
    assert shown.dialogue.own == {}
    await shown.press("ctrl+u", *"0.5")
    assert "✕" not in shown.text
    await shown.press("escape")
    assert shown.dialogue.own == {}
    assert shown.app.returned == []


@pytest.mark.slow
async def test_instructions_of_several_lines(shown: Page) -> None:
    await shown.press("enter", *"One", "ctrl+j", *"two", "enter")
    assert shown.dialogue.system == "One\ntwo"
    await shown.press("ctrl+z")
    assert shown.dialogue.system == ""


@pytest.mark.slow
@pytest.mark.parametrize("size", [(120, 36), (80, 24), (40, 20)])
async def test_instructions_have_a_frame_of_their_own_and_whole_keys(
    path: Path, size: tuple[int, int]
) -> None:
    async with page(path, size) as shown:
        await shown.press("enter", *"Be", "ctrl+j", *"brief")
        lines = [line.strip() for line in shown.text.splitlines()]
        top = next(index for index, line in enumerate(lines) if "Instructions" in line) + 1
        assert (lines[top][:2], lines[top][-2:]) == ("│╭", "╮│")
        assert [line.strip("│ ") for line in lines[top + 1 : top + 3]] == ["Be", "brief"]
        assert not any("Temperature" in line for line in lines[top : top + 7])
        keys = next(line for line in lines if line.startswith("╰─ Enter"))
        assert all(key in keys for key in ("Ctrl+J", "Esc"))
        assert "…" not in keys


async def test_typing_adds_to_instructions_and_replaces_a_number(shown: Page) -> None:
    shown.dialogue.set_system("Be brief")
    await shown.press(*"!", "enter")
    assert shown.dialogue.system == "Be brief!"
    await shown.press("down", *"0.5", "enter")
    assert shown.dialogue.own == {"temperature": 0.5}


async def test_keys_typed_in_a_burst_all_arrive(shown: Page) -> None:
    await shown.down(8)
    for key in [*"16384", "enter"]:
        shown.app.screen.query_one(RowList).post_message(
            events.Key(key, key if len(key) == 1 else None)
        )
    await shown.pilot.pause()
    assert shown.target.settings["ctx"] == 16384


async def test_keys_that_do_nothing_are_not_named(path: Path) -> None:
    async with page(path, (40, 20)) as shown:
        assert "Enter edit · Esc back" in shown.text
        await shown.press("end", "enter")
        assert "← → change · Ctrl+Z undo · Esc" in shown.text
        await shown.press("ctrl+z")
        assert "← → change · Esc back" in shown.text


async def test_choices_apply_at_once_and_are_kept(shown: Page) -> None:
    await shown.press("end", "enter")
    assert shown.target.settings["enter_sends"] is False
    assert shown.kept == {"enter_sends": False}
    await shown.press("up", "up", "right", "right")
    assert shown.target.settings["panel"] == "hidden"
    assert "never" in shown.text
    await shown.press("ctrl+z", "ctrl+z", "ctrl+z")
    assert shown.kept == {}
    assert shown.target.settings["enter_sends"] is True


async def test_a_preset_replaces_the_settings_of_the_chat(shown: Page) -> None:
    shown.dialogue.set_own({"seed": 3})
    assert shown.editor.change("preset", "exact")
    assert shown.dialogue.own == {"top_k": 3, "preset": "exact"}
    assert shown.dialogue.system == "Be exact."
    await shown.changes.undo()
    assert (shown.dialogue.own, shown.dialogue.system) == ({"seed": 3}, "")
    await shown.changes.redo()
    assert not shown.editor.change("preset", "exact")
    assert shown.editor.change("preset", None)
    assert (shown.dialogue.own, shown.dialogue.system) == ({}, "")


async def test_a_preset_loads_its_model_or_changes_nothing(shown: Page) -> None:
    with pytest.raises(UsageError, match=r"preset gone: .* not on this machine"):
        shown.editor.change("preset", "gone")
    with pytest.raises(UsageError, match=r"'exat'\. Nearest: exact"):
        shown.editor.change("preset", "exat")
    assert shown.dialogue.own == {}
    assert not await shown.changes.undo()
    shown.editor.change("preset", "warm")
    assert shown.dialogue.own == {"temperature": 1.5, "preset": "warm"}
    assert shown.target.settings["model"] == "here"
    await shown.changes.undo()
    assert (shown.dialogue.own, shown.target.settings["model"]) == ({}, "qwen3-4b")
    shown.target.settings["model"] = "of a file"
    shown.editor.change("preset", "warm")
    await shown.changes.undo()
    assert (shown.dialogue.own, shown.target.settings["model"]) == ({}, "here")


async def test_settings_are_saved_as_a_preset_and_that_is_undone(shown: Page) -> None:
    shown.dialogue.set_own({"seed": 3, "temperature": 0.25})
    shown.dialogue.set_system("Be brief.")
    await shown.down(4)
    await shown.press(*"mine", "enter")
    saved = shown.path.with_name("presets") / "mine.toml"
    assert shown.editor.presets.get("mine") == {"system": "Be brief.", "temperature": 0.25}
    assert shown.dialogue.own == {"seed": 3, "temperature": 0.25, "preset": "mine"}
    assert "saved preset mine" in shown.text
    assert "Preset         mine" in shown.text
    await shown.press("ctrl+z")
    assert not saved.exists()
    assert shown.dialogue.own == {"seed": 3, "temperature": 0.25}
    await shown.press("ctrl+y")
    assert saved.exists()


async def test_a_preset_has_what_differs_and_takes_no_instructions_of_another(shown: Page) -> None:
    editor = shown.editor
    editor.save_preset("plain")
    assert editor.presets.get("plain") == {}
    editor.change("preset", "exact")
    assert shown.dialogue.system == "Be exact."
    editor.change("preset", "plain")
    assert (shown.dialogue.own, shown.dialogue.system) == ({"preset": "plain"}, "")
    editor.change("system", "Be kind.")
    editor.change("preset", "plain")
    editor.change("preset", "warm")
    assert shown.dialogue.system == "Be kind."
    editor.make_default()
    editor.change("system", "")
    editor.save_preset("none")
    assert editor.presets.get("none")["system"] == ""
    saved = shown.path.with_name("presets") / "none.toml"
    assert 'system = "" # none, whatever' in saved.read_text()


@pytest.mark.slow
async def test_an_existing_preset_is_replaced_only_when_entered_again(shown: Page) -> None:
    saved = shown.path.with_name("presets") / "my.toml"
    saved.parent.mkdir(parents=True)
    saved.write_text("top_k = 9")
    await shown.down(4)
    for name in ("editor", "my"):
        await shown.press("enter", *name, "enter")
        assert "there is such a preset; Enter again replaces it" in shown.text
        assert shown.editor.presets.get(name) != {}
        await shown.press("enter")
        assert shown.editor.presets.get(name) == {}
        await shown.press("ctrl+z")
        assert shown.editor.presets.get(name) != {}
    assert [path.name for path in saved.parent.iterdir()] == ["my.toml"]
    assert saved.read_text() == "top_k = 9"


async def test_a_preset_that_cannot_be_saved_changes_nothing(shown: Page) -> None:
    await shown.down(4)
    await shown.press("enter", *"a/b", "enter")
    assert "✕ Not saved: a name has letters, digits, blanks, - and _" in shown.text
    shown.path.parent.mkdir()
    shown.path.with_name("presets").write_text("a file")
    await shown.press("ctrl+u", *"mine", "enter")
    assert "✕ Not saved: " in shown.text
    assert shown.dialogue.own == {}
    assert not await shown.changes.undo()


@pytest.mark.slow
async def test_more_settings_expand(shown: Page) -> None:
    await shown.down(5)
    await shown.press("enter", "enter", "ctrl+u", *"7", "enter")
    assert shown.dialogue.own == {"top_k": 7}
    assert "Lossy" in shown.text


@pytest.mark.slow
async def test_the_context_changes_without_a_restart(shown: Page) -> None:
    await shown.down(8)
    await shown.press("enter", "ctrl+u", *"16,384 tokens", "enter")
    assert shown.target.settings["ctx"] == 16384
    assert shown.kept == {"ctx": 16384}
    await shown.press("enter", "ctrl+u", *"77", "enter")
    assert "✕ Context size: there is not enough memory" in shown.text
    assert shown.target.settings["ctx"] == 16384
    assert shown.kept == {"ctx": 16384}


@pytest.mark.parametrize(("row", "opened"), [(3, "preset"), (6, "model"), (7, "drafters")])
async def test_presets_models_and_drafters_are_chosen_from_their_lists(
    shown: Page, row: int, opened: str
) -> None:
    await shown.down(row)
    await shown.press("enter")
    assert shown.app.returned == [opened]


async def test_the_settings_of_this_chat_become_the_default(shown: Page) -> None:
    shown.dialogue.set_own({"temperature": 0.1})
    shown.dialogue.set_system("Be brief.")
    await shown.press("ctrl+s")
    assert shown.kept == {"temperature": 0.1, "system": "Be brief."}
    assert "●" not in shown.text
    assert shown.target.new_chats is not None
    assert shown.target.new_chats[0].sampling.temperature == 0.1
    await shown.press("ctrl+z")
    assert shown.kept == {}
    assert shown.target.new_chats == (shown.answering, "")


async def test_an_undo_that_cannot_be_saved_is_told_and_can_be_tried_again(shown: Page) -> None:
    await shown.press("end", "right")
    kept = shown.path.read_bytes()
    shown.path.unlink()
    shown.path.mkdir()
    await shown.press("ctrl+z")
    assert "✕ Not changed" in shown.text
    shown.path.rmdir()
    shown.path.write_bytes(kept)
    await shown.press("ctrl+z")
    assert shown.kept == {}


@pytest.mark.slow
async def test_undo_after_another_chat_was_opened_leaves_that_alone(shown: Page) -> None:
    first = shown.dialogue
    await shown.press("down", "enter", "ctrl+u", *"0.25", "enter")
    shown.target.dialogue = Dialogue(None)
    shown.dialogue.set_own({"temperature": 0.5})
    await shown.press("ctrl+z")
    assert shown.dialogue.own == {"temperature": 0.5}
    assert first.own == {}


@pytest.mark.parametrize("size", [(10, 3), (40, 20)])
async def test_hostile_values_at_any_size(path: Path, size: tuple[int, int]) -> None:
    async with page(path, size, "".join(TEXTS)) as shown:
        await shown.press("enter", "escape", "end", "enter")
        assert "\x1b" not in shown.text
