"""Chats in a file that several programs share: nothing is lost, whatever happens."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.documents.library import Library
from app.history import History, HistoryError
from app.history.records import Preview, Queued, own_writer
from app.history.store import index_of, open_history, remove_chat
from app.paths import Paths

_WRITER = """
import sys
from pathlib import Path
from app.history import History
history = History.open(Path(sys.argv[1]))
chat = history.create("demo")
for number in range(10_000):
    history.add(chat, "user", f"message {number}")
    print(number, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chats.sqlite3"


@pytest.fixture
def history(path: Path) -> Iterator[History]:
    with closing(History.open(path)) as opened:
        yield opened


def test_what_was_said_is_found_again(history: History, path: Path) -> None:
    chat = history.create("demo", "be brief")
    question = history.add(chat, "user", "\n  Why is\tthe sky blue?\nsecond line")
    answer = history.add(chat, "assistant", "Beca")
    history.update(answer, "Because of scattering.", "20 tokens")
    with closing(History.open(path)) as again:
        (found,) = again.chats()
        assert (found.number, found.title) == (chat, "Why is\tthe sky blue?")
        assert (found.model, found.system, found.messages) == ("demo", "be brief", 2)
        messages = again.messages(chat)
        assert [saved.number for saved in messages] == [question, answer]
        assert messages[1].text == "Because of scattering."
        assert messages[1].ending == "20 tokens"


def test_only_a_message_that_nothing_follows_can_be_withdrawn(history: History) -> None:
    chat, other = history.create("demo"), history.create("demo")
    question = history.add(chat, "user", "one")
    elsewhere = history.add(other, "user", "elsewhere")
    answer = history.add(chat, "assistant", "two")
    history.withdraw(chat, question)
    history.withdraw(chat, elsewhere)
    assert [saved.number for saved in history.messages(chat)] == [question, answer]
    assert [saved.number for saved in history.messages(other)] == [elsewhere]
    history.withdraw(chat, answer)
    assert [saved.shown for saved in history.messages(chat)] == [0]


def test_a_chat_goes_with_its_last_question_and_its_numbers_are_not_used_again(
    history: History,
) -> None:
    chat = history.create("demo")
    question = history.add(chat, "user", "one")
    history.withdraw(chat, question)
    with pytest.raises(HistoryError, match="no chat"):
        history.chat(chat)
    later = history.create("demo")
    assert later > chat
    assert history.add(later, "user", "two") > question
    assert not history.update(question, "of another chat?")
    assert history.add(chat, "user", "for nobody") == 0
    assert history.add(later, "user", "after nothing", parent=question) == 0


def test_a_chat_without_a_question_is_not_listed(history: History) -> None:
    chat = history.create("demo")
    assert history.chats() == []
    history.enqueue(chat, "waits")
    assert [found.title for found in history.chats()] == ["waits"]


def test_versions_of_a_message(history: History) -> None:
    chat = history.create("demo")
    first = history.add(chat, "user", "first", parent=0)
    answer = history.add(chat, "assistant", "to the first", "3 tokens", parent=first)
    edited = history.add(chat, "user", "edited", parent=0)
    assert [saved.text for saved in history.path(chat)] == ["edited"]
    assert history.chat(chat).title == "edited"
    assert history.chat(chat).versions == 2
    history.show(chat, 0, first)
    assert [saved.number for saved in history.path(chat)] == [first, answer]
    assert history.chat(chat).title == "first"
    again = history.add(chat, "assistant", "once more", "3 tokens", parent=first)
    assert [saved.number for saved in history.path(chat)] == [first, again]
    assert history.chat(chat).versions == 3
    history.withdraw(chat, edited)
    assert history.chat(chat).versions == 2
    history.rename(chat, "named")
    history.show(chat, 0, edited)
    assert history.chat(chat).title == "named"
    history.rename(chat, "")
    assert history.chat(chat).title == "first"


def test_attachments_stand_beside_their_message_and_are_searched(history: History) -> None:
    chat = history.create("demo")
    attachments = (
        Attachment(AttachmentKind.PASTE, "[pasted 6 lines]", "narwhal \ud800"),
        Attachment(AttachmentKind.FILE, "a.md", "walrus"),
    )
    message = history.add(chat, "user", "see [pasted 6 lines]", attachments=attachments)
    (saved,) = history.messages(chat)
    assert saved.attachments == (replace(attachments[0], text="narwhal ?"), attachments[1])
    assert len(history.chats("narw")) == len(history.chats("walrus see")) == 1
    assert history.questions() == [("see [pasted 6 lines]", saved.attachments[:1])]
    history.withdraw(chat, message)
    assert history.chats("narwhal") == []


def test_the_queue_stays(history: History, path: Path) -> None:
    chat, other = history.create("demo"), history.create("demo")
    attachment = Attachment(AttachmentKind.FILE, "a.md", "walrus")
    first = history.enqueue(chat, "one", [attachment])
    second = history.enqueue(chat, "two")
    with closing(History.open(path)) as again:
        assert again.queue(chat) == [
            Queued("one", (attachment,), first),
            Queued("two", number=second),
        ]
        assert again.queue(other) == []
    history.unqueue(second)
    assert history.enqueue(chat, "three") > second


def test_an_answer_is_interrupted_once_its_app_is_gone(history: History) -> None:
    chat = history.create("demo")
    history.add(chat, "user", "one")
    answer = history.add(chat, "assistant", "begun", writer=own_writer())
    assert not history.chat(chat).is_interrupted
    for writer in ("", "1 0.00", f"{os.getpid()} 17.00", "999999999 1.0", "nonsense", "-1 1.0"):
        history.update(answer, "begun", writer=writer)
        assert history.chat(chat).is_interrupted
    history.update(answer, "begun and done", "3 tokens")
    assert not history.chat(chat).is_interrupted


def test_a_preview(history: History) -> None:
    chat = history.create("demo")
    assert history.preview(chat) == Preview("", "")
    for role, text in (("user", "one"), ("assistant", "two"), ("user", "three")):
        history.add(chat, role, text)
    assert history.preview(chat) == Preview("three", "")
    history.add(chat, "assistant", "four " * 1000, "stopped")
    preview = history.preview(chat)
    assert preview.question == "three"
    assert preview.answer.startswith("four four")
    assert len(preview.answer) < 2000


def test_the_latest_chat_comes_first(history: History) -> None:
    first, second = history.create("demo"), history.create("demo")
    history.add(second, "user", "x")
    history.add(first, "user", "y")
    assert [chat.number for chat in history.chats()] == [first, second]


def test_a_removed_chat_can_be_restored(history: History) -> None:
    chat = history.create("demo")
    history.add(chat, "user", "hello")
    history.remove(chat)
    assert history.chats() == history.chats("hello") == []
    with pytest.raises(HistoryError, match=f"no chat {chat}"):
        history.chat(chat)
    history.purge()
    history.restore(chat)
    assert history.chat(chat).messages == 1


def test_two_programs_share_a_file(history: History, path: Path) -> None:
    with closing(History.open(path)) as other:
        ours, theirs = history.create("demo"), other.create("demo")
        for number in range(20):
            history.add(ours, "user", f"ours {number}")
            other.add(theirs, "user", f"theirs {number}")
        assert len(history.messages(theirs)) == len(other.messages(ours)) == 20


def test_a_locked_file_is_an_error_not_a_wait_for_ever(
    history: History, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.history.database._WAIT_SECONDS", 0.05)
    with closing(History.open(path)) as other, closing(sqlite3.connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryError, match="locked"):
            other.create("demo")


def test_a_killed_program_leaves_all_it_saved(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        saved = [int(writer.stdout.readline()) for _ in range(50)]
        os.kill(writer.pid, signal.SIGKILL)
        saved += [int(line) for line in writer.stdout if line.endswith("\n")]
    with closing(History.open(path)) as history:
        (chat,) = history.chats()
        texts = [message.text for message in history.messages(chat.number)]
    assert texts[: len(saved)] == [f"message {number}" for number in saved]
    assert len(texts) <= len(saved) + 1


def test_a_file_that_is_no_database(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("not a database, by any means" * 100)
    with pytest.raises(HistoryError, match="cannot open the chats"):
        History.open(path, repairs=False)
    with closing(History.open(path)) as history:
        assert history.chats() == []
        assert "0 messages" in history.news()
    (kept,) = path.parent.glob("*.damaged-*")
    assert kept.read_text() == "not a database, by any means" * 100


def test_a_file_of_a_newer_version(history: History, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute("ALTER TABLE chats ADD COLUMN colour TEXT")
    with pytest.raises(HistoryError, match="newer version"):
        History.open(path)


def test_a_version_that_was_damaged(history: History, path: Path) -> None:
    history.add(history.create("demo"), "user", "still there")
    history.close()
    for version in (0, 1, 99, -1, 2**31 - 1):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {version}")
        with closing(History.open(path)) as repaired:
            assert [saved.text for saved in repaired.messages(1)] == ["still there"]
            assert "1 messages were recovered" in repaired.news()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HistoryError, match="cannot open the chats"):
        History.open(tmp_path / "file" / "chats.sqlite3")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    path.touch(mode=0o644)
    with closing(History.open(path)) as history:
        history.create("demo")
        assert {file.stat().st_mode & 0o077 for file in tmp_path.glob("chats.*")} == {0}


def test_tokens_of_an_answer_are_kept_as_long_as_it_is(history: History) -> None:
    chat = history.create("model")
    question = history.add(chat, "user", "Hi")
    answer = history.add(chat, "assistant", "Hello")
    assert history.tokens(answer) == ()
    history.keep_tokens(answer, [1, 1 << 31, 0])
    history.keep_tokens(answer, [5, 200_000])
    assert history.tokens(answer) == (5, 200_000)
    history.withdraw(chat, answer)
    history.keep_tokens(answer, [7])
    assert history.tokens(answer) == history.tokens(question) == ()


_PAGE = 4096
_DISK_FULL_FOR_A_WHILE = """
import resource, signal, sys
from pathlib import Path
from app.documents.library import Library
from app.history import History, HistoryError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
history = History.open(Path(sys.argv[1]))
chat = history.create("demo")
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, most))
try:
    for saved in range(1000):
        history.add(chat, "user", "x" * 5000)
except HistoryError as error:
    print("rollback" in str(error), len(history.messages(chat)) - saved)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
history.add(chat, "user", "room again")
print(len(history.messages(chat)) - saved)
"""


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be deleted there")
def test_a_deleted_file(history: History, path: Path) -> None:
    chat = history.create("demo")
    path.unlink()
    with pytest.raises(HistoryError, match="was deleted"):
        history.add(chat, "user", "would be lost")
    with closing(History.open(path)) as other:
        other.create("demo")
        with pytest.raises(HistoryError, match="another file"):
            history.add(chat, "user", "would be lost too")


def test_a_damaged_file(path: Path) -> None:
    with closing(History.open(path)) as history:
        chat = history.create("demo")
        for _ in range(300):
            history.add(chat, "user", "y" * 2000)
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(40 * _PAGE)  # the tables begin before it
        file.write(b"\xee" * (size - 40 * _PAGE))
    with pytest.raises(HistoryError, match="malformed"):
        History.open(path, repairs=False)
    damaged = path.read_bytes()
    with closing(History.open(path)) as history:
        saved = history.messages(chat)
        assert {one.text for one in saved} == {"y" * 2000}
        assert f"{len(saved)} messages were recovered" in history.news()
        assert history.news() == ""
        history.add(chat, "user", "more")
    (kept,) = path.parent.glob("*.damaged-*")
    assert kept.read_bytes() == damaged


def test_a_database_of_another_program(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE chats (something)")
    with pytest.raises(HistoryError, match="cannot open the chats"):
        History.open(path)


def test_a_closed_history(history: History) -> None:
    history.close()
    with pytest.raises(HistoryError, match="closed"):
        history.create("demo")


def test_a_chat_that_never_was(history: History) -> None:
    assert history.add(7, "user", "for nobody") == 0
    with pytest.raises(HistoryError, match="too large"):
        history.chat(10**30)
    assert history.messages(7) == []
    history.add(history.create("demo"), "user", "and on it goes")


def test_halves_of_characters_are_replaced(history: History) -> None:
    chat = history.create("caf\udce9.gguf", "\ud800")
    history.add(chat, "user", "half \ud83d of it")
    (saved,) = history.messages(chat)
    assert saved.text == "half ? of it"
    assert history.chat(chat).model == "caf?.gguf"


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_on_a_full_disk_what_was_saved_stays_and_after_it_goes_on(path: Path) -> None:
    command = [sys.executable, "-c", _DISK_FULL_FOR_A_WHILE, str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["False", "0", "1"]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
@pytest.mark.skipif(getattr(os, "geteuid", int)() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o500)
    try:
        with pytest.raises(HistoryError, match="cannot open the chats"):
            History.open(path)
    finally:
        path.parent.chmod(0o700)


def test_several_programs_make_the_file_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.history.database._WAIT_SECONDS", 60.0)
    together = Barrier(4)

    def create(path: Path) -> int:
        together.wait()
        with closing(History.open(path)) as history:
            return history.create("demo")

    with ThreadPoolExecutor(4) as programs:
        for place in range(20):
            path = tmp_path / f"{place}.sqlite3"
            assert sorted(programs.map(create, [path] * 4)) == [1, 2, 3, 4]


def test_what_is_purged_leaves_no_text_and_a_sound_index(history: History, path: Path) -> None:
    chat, other = history.create("demo"), history.create("demo")
    history.add(chat, "user", "a secret, told in confidence")
    history.add(other, "user", "in public")
    history.remove(chat)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE chats SET removed = 0 WHERE number = ?", (chat,))
        connection.commit()
    history.purge()
    assert [found.number for found in history.chats("in")] == [other]
    history.close()
    assert b"told in confidence" not in path.read_bytes()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


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


def test_when_each_model_was_used_last(history: History) -> None:
    first, second, other = (history.create(model) for model in ("a", "a", "b"))
    for chat in (other, second, first):
        history.add(chat, "user", "hello")
    times = {chat.number: chat.updated for chat in history.chats()}
    assert history.used_models() == {"a": max(times[first], times[second]), "b": times[other]}


def test_the_index_of_a_chat_goes_with_it(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path, tmp_path)
    with closing(open_history(paths)) as history:
        kept, removed, purged = (history.create("demo", folder="/notes") for _ in range(3))
        for chat in (kept, removed, purged):
            file = index_of(paths, chat)
            Library(str(tmp_path / "notes"), file).close()
            assert os.name == "nt" or file.stat().st_mode & 0o077 == 0
        remove_chat(history, removed, paths)
        assert not index_of(paths, removed).exists()
        history.remove(purged)  # as when the app is killed in between
        bare = history.create("demo")
        Library("", index_of(paths, bare)).close()
    with closing(open_history(paths)):
        assert [file.name for file in paths.indexes.iterdir()] == [index_of(paths, kept).name]
