"""A chat of thousands of messages: only those near the view are mounted."""

import itertools

import pytest

from app.dialogue.dialogue import Dialogue
from app.history import History
from app.paths import Paths
from tests.app.tui.conversation.conftest import Chat, Chatting
from tests.fixtures.scripted import ScriptedModel

MESSAGES = 5000
MOST_MOUNTED = 50


@pytest.fixture(scope="module")
def _answers() -> list[str]:
    return [f"Answer {n}.\n\n- one\n- two\n\n`code` and *more* text." for n in range(MESSAGES // 2)]


def fill(answers: list[str]) -> int:
    """A saved chat with thousands of messages; its number."""
    history = History.open(Paths.of_this_user().history)
    dialogue = Dialogue(history)
    first = dialogue.add("user", "question 0")
    number = dialogue.chat
    assert number is not None
    parent = first.number
    with history_connection(history) as connection:
        for place in itertools.count(1):
            if place == MESSAGES:
                break
            role = "assistant" if place % 2 else "user"
            text = answers[place // 2] if place % 2 else f"question {place // 2}"
            cursor = connection.execute(
                "INSERT INTO messages (chat, role, text, ending, created, parent)"
                " VALUES (?, ?, ?, ?, 0, ?)",
                (number, role, text, "9 tokens" if place % 2 else "", parent),
            )
            parent = cursor.lastrowid
    history.close()
    return number
