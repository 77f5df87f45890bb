"""Help at every width: keys of the focused widget first, then all of them, then the words."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static, TextArea

from app.actions import ACTIONS
from app.settings.in_effect import Preferences
from app.tui.panel.graph import TERMS
from app.tui.screens.help import HelpScreen
from app.tui.store import Store
from tests.fixtures.screen_text import screen_text
from tests.fixtures.small_app import Shown, SmallApp, compare_screen, small_app

PREFERENCES = Preferences(Path("config.toml"))


class Row(Static):
    """A row of the panel."""

    help_text = "lookup copies from what was said in this chat. It is free."


@asynccontextmanager
async def helping(
    size: tuple[int, int],
    focused: Widget | None = None,
    preferences: Preferences = PREFERENCES,
) -> AsyncIterator[Shown]:
    async with small_app(size) as shown:
        await shown.open(HelpScreen(Store(preferences), focused))
        await shown.pilot.pause()
        yield shown


async def text_of(focused: Widget | None = None, preferences: Preferences = PREFERENCES) -> str:
    async with helping((100, 120), focused, preferences) as shown:
        return shown.text


@pytest.mark.parametrize("size", [(120, 36), (80, 24), (40, 20)])
async def test_help_at_every_size(size: tuple[int, int], pytestconfig: pytest.Config) -> None:
    async with helping(size) as shown:
        compare_screen(shown.app, f"help_{size[0]}x{size[1]}", pytestconfig)


async def test_every_action_and_term_is_listed() -> None:
    text = await text_of()
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
        await app.push_screen(HelpScreen(Store(PREFERENCES)))
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
    assert first in (await text_of(focused)).splitlines()[1]


@pytest.mark.slow
async def test_help_says_which_key_sends() -> None:
    preferences = Preferences(Path("config.toml"), enter_sends=False, keys={"new": "alt+n"})
    text = await text_of(preferences=preferences)
    assert any(
        line.startswith("│   Ctrl+J, Shift+Enter") and "send;" in line for line in text.splitlines()
    )
    assert "Alt+N" in text


@pytest.mark.parametrize("size", [(10, 3), (1, 1)])
async def test_help_in_a_terminal_of_next_to_no_size(size: tuple[int, int]) -> None:
    async with helping(size) as shown:
        assert shown.text


async def test_help_scrolls_and_closes() -> None:
    async with helping((80, 24)) as shown:
        await shown.press("end")
        await shown.press("q")
        assert not isinstance(shown.app.screen, HelpScreen)


async def test_a_dialog_follows_the_terminal(pytestconfig: pytest.Config) -> None:
    async with helping((120, 36)) as shown:
        await shown.pilot.resize_terminal(80, 24)
        await shown.pilot.pause()
        await shown.pilot.pause()
        compare_screen(shown.app, "help_80x24", pytestconfig)
