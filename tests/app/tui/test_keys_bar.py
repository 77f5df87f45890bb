"""The keys bar: its keys can be clicked."""

from app.tui.keys_bar import KeysBar, shown_key
from tests.fixtures.prompt_app import prompting


async def test_a_click_runs_the_action() -> None:
    async with prompting() as prompt:
        (row,) = [line for line in await prompt.lines() if "F1 help" in line]
        await prompt.pilot.click(KeysBar, offset=(row.index("F1"), 0))
        await prompt.until(lambda: prompt.app.actions == ["help"])


def test_keys_as_they_are_written() -> None:
    keys = ["escape", "ctrl+l,f10", "f1", "alt+o", "ctrl+shift+f5"]
    assert [shown_key(key) for key in keys] == ["Esc", "Ctrl+L", "F1", "Alt+O", "Ctrl+Shift+F5"]
