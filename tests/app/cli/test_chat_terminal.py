"""The conversation on a terminal: bare `specchat`, Ctrl-C and Ctrl-D."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("llamacpp")

OnTerminal = Callable[..., Any]


@pytest.mark.slow
def test_the_bare_command_starts_the_conversation(on_terminal: OnTerminal) -> None:
    terminal = on_terminal("--draft", "off")
    greeting = terminal.read_until("> ")
    assert "drafting off" in greeting
    assert "/help" in greeting
    terminal.type("/quit\n")
    assert terminal.end()[0] == 0


@pytest.mark.slow
def test_ctrl_c_stops_an_answer_and_the_conversation_goes_on(
    on_terminal: OnTerminal, counting: str
) -> None:
    terminal = on_terminal("chat", "--draft", "off", "--model", counting)
    terminal.read_until("> ")
    terminal.type("count\n")
    terminal.read_until(" 9 ")
    terminal.type("\x03")
    assert "stopped]" in terminal.read_until("> ")
    terminal.type("/stats\n")
    terminal.read_until("stopped]")
    terminal.read_until("> ")
    terminal.type("\x04")
    code, shown = terminal.end()
    assert code == 0
    assert "Traceback" not in shown


@pytest.mark.slow
def test_ctrl_d_ends_the_conversation(on_terminal: OnTerminal) -> None:
    terminal = on_terminal("chat", "--draft", "off")
    terminal.read_until("> ")
    terminal.type("\x04")
    code, shown = terminal.end()
    assert code == 0
    assert "Traceback" not in shown


@pytest.mark.slow
def test_ctrl_c_twice_at_the_prompt_ends_with_130(on_terminal: OnTerminal) -> None:
    terminal = on_terminal("chat", "--draft", "off")
    terminal.read_until("> ")
    # The line end wakes readline, which misses a signal that comes as it begins to wait.
    terminal.type("\x03\n")
    terminal.read_until("to leave")
    terminal.read_until("> ")
    terminal.type("\x03\n")
    code, shown = terminal.end()
    assert code == 130
    assert "Traceback" not in shown


@pytest.mark.slow
def test_an_option_given_before_no_command_counts(on_terminal: OnTerminal) -> None:
    terminal = on_terminal("--ctx", "777", "--draft", "off")
    assert "context 777" in terminal.read_until("> ")
