"""The app in a real terminal with the bundled model: talk, stop, be killed, find the chat again."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

PATIENCE_SECONDS = 90.0

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.usefixtures("llamacpp"),
]


class Terminal:
    """A terminal of 100 columns and 30 lines in which the app runs."""

    def __init__(self) -> None:
        self._socket = f"specchat-{uuid.uuid4().hex[:8]}"
        app = f"SPECCHAT_TEMPERATURE=0 {sys.executable} -m app.cli.entry --draft lookup"
        command = f"{app}; echo left with $?; cat"
        self._tmux("-f", os.devnull, "new-session", "-d", "-x", "100", "-y", "30", command)

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-u", "-L", self._socket, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    @property
    def shown(self) -> str:
        return self._tmux("capture-pane", "-p")

    def write(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def until(self, holds: Callable[[str], bool]) -> str:
        """Wait for the screen to show something."""
        end = time.monotonic() + PATIENCE_SECONDS
        pause = threading.Event()
        while not holds(shown := self.shown):
            assert time.monotonic() < end, shown
            pause.wait(0.05)
        return shown

    def kill_app(self) -> None:
        """End the app the hard way."""
        shell = self._tmux("display-message", "-p", "#{pane_pid}").strip()
        listed = subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True, check=True)
        os.kill(int(listed.stdout.split()[0]), signal.SIGKILL)

    def close(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def open_terminal() -> Iterator[Callable[[], Terminal]]:
    opened: list[Terminal] = []

    def open_one() -> Terminal:
        opened.append(Terminal())
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.close()


def test_talk_stop_be_killed_and_find_the_chat_again(
    open_terminal: Callable[[], Terminal],
) -> None:
    terminal = open_terminal()
    terminal.until(lambda shown: "Ask something and press Enter" in shown)
    assert "SmolLM2-135M-Instruct.Q4_1 · llama.cpp CPU" in terminal.shown
    terminal.write("Write a long story about a lighthouse.")
    terminal.press("Enter")
    terminal.until(lambda shown: "tok/s" in shown and "context" in shown)
    terminal.press("Escape")
    shown = terminal.until(lambda shown: "stopped" in shown)
    assert "drafting" in shown
    terminal.write("Tell me a very long story about a lighthouse called Zanzibar.")
    terminal.press("Enter")
    terminal.until(lambda shown: "Zanzibar" in shown and "stopped" in shown)
    terminal.kill_app()
    terminal.until(lambda shown: "left with 137" in shown)

    again = open_terminal()
    again.until(lambda shown: "Ask something and press Enter" in shown)
    again.press("C-o")
    again.until(lambda shown: "Search in titles" in shown)
    again.write("zanzibar")
    again.until(lambda shown: "Write a long story" in shown and "messages" in shown)
    again.press("Enter")
    again.until(lambda shown: "Tell me a very long story" in shown)
    again.press("C-q")
    again.until(lambda shown: "left with 0" in shown)
