"""`specchat chats` from the shell, and chats as files."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from app.history import History
from app.paths import Paths
from tests.app.conftest import Specchat


@pytest.fixture
def chat() -> int:
    """A saved chat; its text tries to steer the terminal."""
    with closing(History.open(Paths.of_this_user().history)) as history:
        number = history.create("demo", "be brief")
        history.add(number, "user", "Why \x1b[2Jis the sky blue?")
        history.add(number, "assistant", "Scattering.", "3 tokens")
    return number


def test_list(specchat: Specchat, chat: int) -> None:
    ended = specchat("chats", "list")
    assert ended.returncode == 0
    assert f"{chat:5}" in ended.stdout
    assert "sky blue" in ended.stdout
    assert "\x1b" not in ended.stdout
    assert specchat("chats", "list", "scatt").stdout == ended.stdout
    assert specchat("chats", "list", "nothing").stdout == ""
    listing = json.loads(specchat("chats", "list", "--json").stdout)
    assert listing["schema"] == 1
    (found,) = listing["chats"]
    assert (found["number"], found["messages"]) == (chat, 2)


@pytest.mark.usefixtures("llamacpp")
def test_a_data_folder_that_is_none_is_told(specchat: Specchat) -> None:
    data = Paths.of_this_user().data
    data.parent.mkdir(parents=True, exist_ok=True)
    data.touch()
    for command in (("list",), ("show", "1")):
        ended = specchat("chats", *command)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert str(data) in ended.stderr
    facts = json.loads(specchat("doctor", "--json").stdout)["data"]
    assert facts["folder"] == str(data)
    assert facts["fault"]
    data.unlink()
    assert json.loads(specchat("doctor", "--json").stdout)["data"]["fault"] == ""


def test_a_list_tells_versions_and_names_a_chat_by_the_command_whose_output_it_begins_with(
    specchat: Specchat,
) -> None:
    with closing(History.open(Paths.of_this_user().history)) as history:
        for text in ("[$ echo hi: 2 lines] ", "[$ git diff: 1,020 lines, 2] Why \n this?", "[$ a]"):
            number = history.create("demo", "")
            question = history.add(number, "user", text)
            history.add(number, "assistant", "One.", parent=question)
        history.add(number, "assistant", "Two.", parent=question)
    rows = [line.split(maxsplit=2)[2] for line in specchat("chats", "list").stdout.splitlines()]
    assert rows == ["3 messages  [$ a] · 2 versions", "2 messages  Why", "2 messages  echo hi"]


def test_without_chats_nothing_is_made(specchat: Specchat) -> None:
    ended = specchat("chats", "list")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "no chats yet" in ended.stderr
    assert json.loads(specchat("chats", "list", "--json").stdout) == {"schema": 1, "chats": []}
    assert specchat("chats", "show", "1").returncode == 2
    assert not Paths.of_this_user().history.exists()


def test_show(specchat: Specchat, chat: int) -> None:
    shown = specchat("chats", "show", str(chat)).stdout
    assert "**Assistant**\n\nScattering.\n\n*3 tokens*" in shown
    assert "\x1b" not in shown
    found = json.loads(specchat("chats", "show", str(chat), "--json").stdout)
    assert found["schema"] == 1
    assert found["system"] == "be brief"
    assert [message["role"] for message in found["messages"]] == ["user", "assistant"]


def test_what_was_exported_is_imported_as_another_chat(
    specchat: Specchat, chat: int, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    assert specchat("chats", "export", str(chat), str(one)).returncode == 0
    Paths.of_this_user().history.unlink()
    imported = json.loads(specchat("chats", "import", str(one), "--json").stdout)["imported"]
    assert (imported["title"], imported["messages"]) == ("Why \x1b[2Jis the sky blue?", 2)
    assert specchat("chats", "export", str(imported["number"]), str(other)).returncode == 0
    assert one.read_bytes() == other.read_bytes()
    again = specchat("chats", "import", str(one))
    assert (again.returncode, again.stdout) == (0, "")
    assert f"it is here already as {imported['number']}: Why" in again.stderr
    present = json.loads(specchat("chats", "import", str(one), "--json").stdout)["present"]
    assert present == imported
    copy = json.loads(specchat("chats", "import", str(one), "--copy", "--json").stdout)["imported"]
    assert copy == {**imported, "number": imported["number"] + 1}
    refused = specchat("chats", "import", str(tmp_path / "none.json"))
    assert (refused.returncode, refused.stdout) == (2, "")


def test_export(specchat: Specchat, chat: int, tmp_path: Path) -> None:
    for name in ("chat.md", "chat.json"):
        command = ("chats", "export", str(chat), str(tmp_path / name))
        assert specchat(*command).returncode == 0
        again = specchat(*command)
        assert (again.returncode, "--force" in again.stderr) == (2, True)
        assert specchat(*command, "--force").returncode == 0
    assert "Scattering." in (tmp_path / "chat.md").read_text()
    assert json.loads((tmp_path / "chat.json").read_text())["number"] == chat
    odd = specchat("chats", "export", str(chat), str(tmp_path / "chat.pdf"))
    assert (odd.returncode, ".md" in odd.stderr) == (2, True)
    nowhere = specchat("chats", "export", str(chat), "/nonexistent/chat.md")
    assert nowhere.returncode == 1
    assert sorted(path.name for path in tmp_path.glob("*chat*")) == ["chat.json", "chat.md"]


def test_json_goes_to_a_file_on_request(specchat: Specchat, chat: int, tmp_path: Path) -> None:
    file = tmp_path / "chats.json"
    ended = specchat("chats", "list", "--json", "--output", str(file))
    assert (ended.returncode, ended.stdout) == (0, "")
    assert json.loads(file.read_text(encoding="utf-8"))["chats"][0]["number"] == chat
    shown = specchat("chats", "list", "--json", "--output", "-").stdout
    assert json.loads(shown)["chats"][0]["number"] == chat
    refused = specchat("chats", "list", "--output", str(file))
    assert (refused.returncode, "--output needs --json" in refused.stderr) == (2, True)


def test_remove(specchat: Specchat, chat: int) -> None:
    assert specchat("chats", "remove", str(chat)).returncode == 0
    assert specchat("chats", "list").stdout == ""
    again = specchat("chats", "remove", str(chat))
    assert again.returncode == 2
    assert "no chat" in again.stderr


def test_text_cannot_steer_the_terminal(specchat: Specchat) -> None:
    text = "one\x9b2J\x7f\u202e two\u00a0three 👩\u200d💻 天\u3000空"
    with closing(History.open(Paths.of_this_user().history)) as history:
        number = history.create("demo")
        history.add(number, "user", text)
        history.rename(number, f"{text}\nnext\r")
    for arguments in (("list",), ("show", str(number))):
        for option in ((), ("--json",)):
            shown = specchat("chats", *arguments, *option).stdout
            assert not set(shown) & set("\x9b\x7f\r\u202e")
            assert "👩\u200d💻" in shown
            assert "two" in shown
    assert "two\u00a0three" in specchat("chats", "show", str(number)).stdout
    assert specchat("chats", "list").stdout.count("\n") == 1
    found = json.loads(specchat("chats", "show", str(number), "--json").stdout)
    assert found["messages"][0]["text"] == text


@pytest.mark.parametrize("command", [("show",), ("export",), ("remove",)])
def test_an_unknown_number(specchat: Specchat, chat: int, command: tuple[str, ...]) -> None:
    file = ("chat.md",) if command == ("export",) else ()
    ended = specchat("chats", *command, "99999999999999999999", *file)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"Nearest: {chat} (" in ended.stderr


def test_a_file_that_is_no_database(specchat: Specchat, chat: int) -> None:
    file = Paths.of_this_user().history
    file.write_bytes(b"not a database" * 1000)
    ended = specchat("chats", "show", str(chat))
    assert (ended.returncode, ended.stdout) == (2, "")
    (kept,) = file.parent.glob("*.damaged-*")
    assert str(kept) in ended.stderr
    assert kept.read_bytes() == b"not a database" * 1000
