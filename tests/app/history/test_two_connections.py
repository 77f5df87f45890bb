"""Connections of one process to the chats: closing one leaves the others their locks."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from app.history import History

_TEXTS = """
import sys
from contextlib import closing
from pathlib import Path
from app.history import History
with closing(History.open(Path(sys.argv[1]))) as history:
    for chat in history.chats(limit=9):
        print(*(message.text for message in history.messages(chat.number)), sep="|")
"""


def read_by_another_process(path: Path) -> str:
    """Texts of all chats; leaving, the process tidies up as the last one to use the file would."""
    command = [sys.executable, "-c", _TEXTS, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def test_what_is_written_after_another_connection_was_closed_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    with closing(History.open(path)) as history:
        chat = history.create("model")
        history.add(chat, "user", "first")
        with closing(History.open(path, repairs=False)):  # as the index of earlier chats does
            pass
        assert read_by_another_process(path) == "first"
        history.add(chat, "user", "second")
        assert read_by_another_process(path) == "first|second"
