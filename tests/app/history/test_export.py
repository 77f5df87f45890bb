"""Chats as files: both kinds, and nothing half-written."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.history import History, HistoryError
from app.history.export import as_json, as_markdown, write_export


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with closing(History.open(tmp_path / "data" / "chats.sqlite3")) as opened:
        yield opened


@pytest.fixture
def chat(history: History) -> int:
    number = history.create("demo", "be brief")
    history.add(number, "user", "Why is the sky blue?\n\n  really")
    history.add(number, "assistant", "Scattering 🌈", "stopped")
    return number


def test_for_reading(history: History, chat: int) -> None:
    text = as_markdown(history.chat(chat), history.messages(chat))
    assert text.startswith("# Why is the sky blue?\n\n")
    assert "**System**\n\nbe brief\n\n**User**\n\nWhy is the sky blue?\n\n  really\n\n" in text
    assert text.endswith("**Assistant**\n\nScattering 🌈\n\n*stopped*\n")


def test_a_chat_without_messages(history: History) -> None:
    number = history.create("demo")
    assert as_markdown(history.chat(number), []).startswith("# Chat\n")
    assert as_json(history.chat(number), [])["messages"] == []


def test_a_model_that_is_not_known_leaves_no_comma(history: History) -> None:
    number = history.create("")
    assert "," not in as_markdown(history.chat(number), [])
    history.set_fact(number, "model", "demo")
    assert as_markdown(history.chat(number), []).endswith(", demo\n")


@pytest.mark.parametrize("name", ["chat.json", "chat.JSON"])
def test_for_programs(history: History, chat: int, tmp_path: Path, name: str) -> None:
    written = write_export(history, chat, tmp_path / name)
    found = json.loads(written.read_text(encoding="utf-8"))
    assert found == as_json(history.chat(chat), history.messages(chat))
    assert found["schema"] == 1


def test_what_cannot_be_written_leaves_nothing(history: History, chat: int, tmp_path: Path) -> None:
    (tmp_path / "out" / "chat.md").mkdir(parents=True)
    with pytest.raises(HistoryError, match="cannot write"):
        write_export(history, chat, tmp_path / "out" / "chat.md")
    with pytest.raises(HistoryError, match="cannot write"):
        write_export(history, chat, tmp_path / "missing" / "chat.md")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["chat.md"]
