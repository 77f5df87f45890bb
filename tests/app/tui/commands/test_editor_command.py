"""The editor's command line as people set it, on each system."""

from pathlib import Path

import pytest

from app.tui.commands.app import editor_command

NOTEPAD = r"C:\Program Files\Notepad++\notepad++.exe"


@pytest.mark.parametrize(
    ("editor", "words"),
    [
        (r"C:\Tools\new\vim.exe", [r"C:\Tools\new\vim.exe"]),
        (rf'"{NOTEPAD}" -multiInst', [NOTEPAD, "-multiInst"]),
        (f"'{NOTEPAD}' -n '{NOTEPAD}'", [NOTEPAD, "-n", NOTEPAD]),
        (r"\\server\share\ed.exe --wait", [r"\\server\share\ed.exe", "--wait"]),
        ("no-such-editor #1 --wait", ["no-such-editor", "#1", "--wait"]),
    ],
)
def test_on_windows(editor: str, words: list[str]) -> None:
    assert editor_command(editor, on_windows=True) == words


@pytest.mark.parametrize(
    ("editor", "words"),
    [
        (r"/opt/my\ editor/ed -n", ["/opt/my editor/ed", "-n"]),
        ("'/opt/my editor/ed' -n", ["/opt/my editor/ed", "-n"]),
        ("no-such-editor --wait", ["no-such-editor", "--wait"]),
    ],
)
def test_elsewhere(editor: str, words: list[str]) -> None:
    assert editor_command(editor, on_windows=False) == words


@pytest.mark.parametrize("on_windows", [False, True])
def test_a_path_with_spaces_needs_no_quotes(tmp_path: Path, on_windows: bool) -> None:
    editor = tmp_path / "my editor"
    editor.touch()
    assert editor_command(str(editor), on_windows=on_windows) == [str(editor)]


@pytest.mark.parametrize("editor", ["  ", "'open"])
def test_no_command_at_all_is_an_error(editor: str) -> None:
    with pytest.raises(ValueError, match=r"quotation|unpack"):
        editor_command(editor)
