"""Chats as files: both kinds, and nothing half-written."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.history import History, HistoryError
from app.history.export import as_json, as_markdown, backup, read_backup, write_export
from backends.base import UsageError


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with closing(History.open(tmp_path / "data" / "chats.sqlite3")) as opened:
        yield opened


@pytest.fixture
def chat(history: History) -> int:
    number = history.create("demo", "be brief")
    paste = Attachment(AttachmentKind.PASTE, "[pasted]", "  really")
    history.add(number, "user", "Why is the sky blue?\n\n[pasted]", attachments=(paste,))
    history.add(number, "assistant", "Scattering 🌈", "stopped")
    return number


def test_for_reading(history: History, chat: int) -> None:
    text = as_markdown(history.chat(chat), history.messages(chat))
    assert text.startswith("# Why is the sky blue?\n\n")
    assert "**System**\n\nbe brief\n\n**User**\n\nWhy is the sky blue?\n\n  really\n\n" in text
    assert text.endswith("**Assistant**\n\nScattering 🌈\n\n*stopped*\n")


def test_a_chat_without_messages_or_model(history: History) -> None:
    number = history.create("")
    text = as_markdown(history.chat(number), [])
    assert text.startswith("# Chat\n")
    assert "," not in text
    assert as_json(history.chat(number), [])["messages"] == []
    history.set_fact(number, "model", "demo")
    assert as_markdown(history.chat(number), []).endswith(", demo\n")


@pytest.mark.parametrize("name", ["chat.json", "chat.JSON"])
def test_for_programs(history: History, chat: int, tmp_path: Path, name: str) -> None:
    written = write_export(history, chat, tmp_path / name)
    found = json.loads(written.read_text(encoding="utf-8"))
    assert found.items() >= as_json(history.chat(chat), history.messages(chat)).items()
    assert found["schema"] == 1


def test_what_cannot_be_written_leaves_nothing(history: History, chat: int, tmp_path: Path) -> None:
    (tmp_path / "out" / "chat.md").mkdir(parents=True)
    with pytest.raises(HistoryError, match="cannot write"):
        write_export(history, chat, tmp_path / "out" / "chat.md")
    with pytest.raises(HistoryError, match="cannot write"):
        write_export(history, chat, tmp_path / "missing" / "chat.md")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["chat.md"]


def test_a_backup_holds_every_version_and_is_read_back_equal(
    history: History, tmp_path: Path
) -> None:
    other = history.create("another")  # so that no number is the same
    history.add(other, "user", "other")
    paste = Attachment(AttachmentKind.PASTE, "[pasted 2 lines]", "a\nb")
    chat = history.create("demo", "be brief", '{"temperature": 0.5}', "A name", "/notes")
    first = history.add(chat, "user", "why [pasted 2 lines]", attachments=(paste,))
    one = history.add(chat, "assistant", "so", "3 tokens", lossy="typical", model="other")
    two = history.add(chat, "assistant", "or so", "cut", parent=first)
    history.keep_tokens(two, [1, 70_000])
    history.add(chat, "user", "and then?", parent=two)
    history.add(chat, "user", "another first 🌈", parent=0)
    history.show(chat, 0, first)
    history.show(chat, first, one)
    history.enqueue(chat, "next", (paste,))
    written = write_export(history, chat, tmp_path / "chat.json")
    with closing(History.open(tmp_path / "empty" / "chats.sqlite3")) as empty:
        number, is_new = read_backup(empty, written)
        assert read_backup(empty, written) == (number, not is_new)
        assert backup(empty, number) == {**backup(history, chat), "number": number}
        assert empty.facts(number)["folder"] == "/notes"
        assert [saved.text for saved in empty.path(number)] == ["why [pasted 2 lines]", "so"]
        assert [saved.model for saved in empty.path(number)] == ["", "other"]
        assert empty.chats("then")[0].versions == 3
    assert json.loads(written.read_text(encoding="utf-8")) == backup(history, chat)


def test_a_file_of_earlier_versions_is_read(history: History, chat: int, tmp_path: Path) -> None:
    old = as_json(history.chat(chat), history.path(chat))
    file = tmp_path / "old.json"
    file.write_text(json.dumps(old), encoding="utf-8")
    number, _ = read_backup(history, file, copies=True)
    assert number != chat
    assert as_json(history.chat(number), history.path(number)) == {**old, "number": number}
    history.add(number, "user", "goes on")
    assert len(history.path(number)) == 3
    assert history.facts(number)["title"] == ""  # its first question names it


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "no JSON",
        "[" * 100_000,
        '{"messages": 3}',
        '{"messages": [{"role": "user"}]}',
        '{"messages": [], "tree": [{"role": "system"}]}',
        '{"messages": [], "title": "", "model": {}, "system": [], "created": 1, "updated": 1}',
    ],
)
def test_what_is_no_chat_adds_none(history: History, tmp_path: Path, text: str) -> None:
    file = tmp_path / "chat.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="exported as JSON"):
        read_backup(history, file)
    assert history.rows("SELECT number FROM chats", ()) == []
    with pytest.raises(UsageError, match="cannot read"):
        read_backup(history, tmp_path)
