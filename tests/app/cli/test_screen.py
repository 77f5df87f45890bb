"""What a person sees on a terminal, where the answer and everything else share the lines."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.app.conftest import Specchat

pytestmark = pytest.mark.usefixtures("llamacpp")

OnTerminal = Callable[..., Any]

GREEDY = ("--temperature", "0", "--max-tokens", "24", "--draft", "off")
_ERASE = "\r\x1b[K"


def screen(written: str) -> str:
    """The lines that stay: an erased one keeps only what was written after."""
    lines = (line.rpartition(_ERASE)[2] for line in written.replace("\r\n", "\n").split("\n"))
    return "\n".join(lines)


@pytest.mark.slow
def test_an_answer_and_its_figures_stay_on_the_screen_and_a_status_goes(
    specchat: Specchat, on_terminal: OnTerminal
) -> None:
    answer = specchat("ask", "Say hello to the world", *GREEDY).stdout
    code, written = on_terminal("ask", "Say hello to the world", *GREEDY).end()
    assert code == 0
    assert answer in screen(written)
    assert "loading demo" in written
    assert "loading demo" not in screen(written)
    assert "reading" not in screen(written)
    assert re.search(r"\[24 tokens · .* cut at --max-tokens\]", screen(written))


@pytest.mark.slow
def test_an_answer_in_a_conversation_stays_on_the_screen(
    specchat: Specchat, on_terminal: OnTerminal
) -> None:
    answer = specchat("ask", "Say hello to the world", *GREEDY).stdout
    terminal = on_terminal("chat", *GREEDY)
    terminal.read_until("> ")
    terminal.type("Say hello to the world\n")
    terminal.read_until("\n")
    assert answer in screen(terminal.read_until("> "))
