"""Help at every width: keys of the focused widget first, then all of them, then the words."""

from pathlib import Path
from typing import Any

import pytest
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static, TextArea

from app.actions import ACTIONS
from app.settings.start import Preferences
from app.tui.panel.terms import TERMS
from app.tui.screens.help import HelpScreen
from tests.fixtures.screen_text import screen_text
from tests.fixtures.small_app import SmallApp, compare_screen

PREFERENCES = Preferences(Path("config.toml"))


class Row(Static):
    """A row of the panel."""

    help_text = "lookup copies from what was said in this chat. It is free."


async def shown(
    focused: Widget | None = None,
    preferences: Preferences = PREFERENCES,
    size: tuple[int, int] = (100, 120),
) -> str:
    app = SmallApp()
    async with app.run_test(size=size) as pilot:
        await app.push_screen(HelpScreen(preferences, focused))
        await pilot.pause()
        await pilot.pause()
        return screen_text(app)


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (40, 20)])
async def test_help_at_every_size(size: tuple[int, int], pytestconfig: pytest.Config) -> None:
    app = SmallApp()
    async with app.run_test(size=size) as pilot:
        await app.push_screen(HelpScreen(PREFERENCES))
        await pilot.pause()
        await pilot.pause()
        compare_screen(app, f"help_{size[0]}x{size[1]}", pytestconfig)


async def test_every_action_and_term_is_listed() -> None:
    text = await shown()
    assert [action.title for action in ACTIONS if action.title not in text] == []
    assert [term.name for term in TERMS if term.name not in text] == []


async def test_its_first_picture_is_the_whole_page() -> None:
    pictures: list[str] = []

    class Painted(SmallApp):
        def _display(self, screen: Screen[Any], renderable: Any) -> None:
            super()._display(screen, renderable)
            if isinstance(screen, HelpScreen):
                pictures.append(screen_text(self))

    app = Painted()
    async with app.run_test() as pilot:
        await app.push_screen(HelpScreen(PREFERENCES))
        await pilot.pause()
        assert "In the prompt" in next(one for one in pictures if "╭─ Help" in one)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("focused", "first"),
    [
        (None, "In the prompt"),
        (TextArea(), "In the prompt"),
        (Static(), "On a selected message"),
        (Row(), "lookup copies from what was said in this chat. It is free."),
    ],
)
async def test_keys_of_the_focused_widget_come_first(focused: Widget | None, first: str) -> None:
    assert first in (await shown(focused)).splitlines()[1]


async def test_help_says_which_key_sends() -> None:
    preferences = Preferences(Path("config.toml"), enter_sends=False, keys={"new": "alt+n"})
    text = await shown(preferences=preferences)
    assert any(
        line.startswith("│   Ctrl+J, Shift+Enter") and "send;" in line for line in text.splitlines()
    )
    assert "Alt+N" in text


@pytest.mark.parametrize("size", [(10, 3), (1, 1)])
async def test_help_in_a_terminal_of_next_to_no_size(size: tuple[int, int]) -> None:
    assert await shown(size=size)


async def test_help_scrolls_and_closes() -> None:
    app = SmallApp()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(HelpScreen(PREFERENCES))
        await pilot.pause()
        await pilot.press("end")
        await pilot.pause()
        await pilot.press("q")
        await pilot.pause()
        assert not isinstance(app.screen, HelpScreen)


async def test_a_dialog_follows_the_terminal(pytestconfig: pytest.Config) -> None:
    app = SmallApp()
    async with app.run_test(size=(120, 36)) as pilot:
        await app.push_screen(HelpScreen(PREFERENCES))
        await pilot.pause()
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        await pilot.pause()
        compare_screen(app, "help_80x24", pytestconfig)
