"""Tools in `ask` and `chat`: what is read, what is refused, and what is printed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.commands import ask, chat
from app.engine.session import Session
from app.loading.session_options import SessionOptions
from app.paths import Paths
from tests.app.conftest import Specchat
from tests.fixtures import tool_servers
from tests.fixtures.caller import Caller, call
from tests.fixtures.scripted import opened

READ = call("read_lines", '{"path": "notes/plan.md"}')
ECHO = call("probe.echo", '{"text": "hello"}')


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "plan.md").write_text("Buy green tea.\n")
    (tmp_path / "secret").write_text("secret words")
    return folder


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """What a server was called with; mcp.json names it."""
    config = Paths.of_this_user().config
    config.mkdir(parents=True)
    noted = tmp_path / "calls"
    tool_servers.write(config, {"probe": tool_servers.quick(noted)})
    return noted


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Caller]:
    """Have the model of `ask` and `chat` say texts, one after the other."""

    def use(*texts: str) -> Caller:
        model = Caller(*texts)

        def open_session(options: SessionOptions, *_: object, **__: object) -> Session:
            return opened(model)(options, Paths.of_this_user(), lambda _: None)

        for command in (ask, chat):
            monkeypatch.setattr(command, "open_answerer", open_session)
        return model

    return use


def test_ask_reads_the_folder_of_a_named_file_and_prints_the_answer(
    specchat: Specchat, say: Callable[..., Caller], notes: Path
) -> None:
    model = say(f"Let me look.\n{READ}", "You wanted green tea.")
    file = str(notes / "plan.md")
    ended = specchat("ask", "What?", "--file", file, "--tools", "files", "--json")
    told = json.loads(ended.stdout)
    assert told["text"] == "You wanted green tea."
    assert told["calls"] == [
        {
            "name": "read_lines",
            "arguments": '{"path": "notes/plan.md"}',
            "result": "notes/plan.md, lines 1 to 1 of 1:\nBuy green tea.",
        }
    ]
    assert "lines 1 to 1 of 1" in model.asked[-1]
    ended = specchat("ask", "What?", "--file", file, "--tools", "files")
    assert ended.stdout == "Let me look.\nYou wanted green tea.\n"


def test_without_tools_a_call_is_text(specchat: Specchat, say: Callable[..., Caller]) -> None:
    model = say(READ)
    ended = specchat("ask", "What?", "--json")
    assert "calls" not in json.loads(ended.stdout)
    assert len(model.asked) == 1
    assert "read_lines" not in model.asked[0]


def test_ask_reads_nothing_without_a_folder_nor_outside(
    specchat: Specchat, say: Callable[..., Caller], notes: Path
) -> None:
    say(call("search", '{"words": "secret"}'), call("read_lines", '{"path": "../secret"}'), "No.")
    ended = specchat("ask", "What?", "--tools", "files", "--json")
    results = [one["result"] for one in json.loads(ended.stdout)["calls"]]
    assert results == ["Error: no folder is attached"] * 2
    file = str(notes / "plan.md")
    ended = specchat("ask", "What?", "--tools", "files", "--file", file, "--json")
    assert "secret words" not in ended.stdout


@pytest.mark.slow
def test_a_script_calls_only_those_tools_of_servers_that_it_allows(
    specchat: Specchat, say: Callable[..., Caller], calls: Path
) -> None:
    say(ECHO, "Done.")
    refused = specchat("ask", "What?", "--tools", "probe")
    assert refused.stdout == "\nDone.\n"
    assert "note: calls are refused without --allow: probe.echo, " in refused.stderr
    assert "probe.echo is refused: --allow probe.echo allows it" in refused.stderr
    assert calls.read_text() == "started\n"
    ended = specchat("ask", "What?", "--tools", "probe", "--allow", "probe.add")
    assert "without --allow" not in ended.stderr
    assert "echo" not in calls.read_text()
    allowed = specchat("ask", "What?", "--tools", "probe", "--allow", "probe.echo", "--json")
    assert json.loads(allowed.stdout)["calls"][0]["result"] == "hello"
    assert calls.read_text().endswith("echo hello\n")


@pytest.mark.slow
def test_calls_without_an_end_end(specchat: Specchat, say: Callable[..., Caller]) -> None:
    model = say(call("list_files"))
    ended = specchat("ask", "What?", "--tools", "files")
    assert "20 answers in a row have called tools" in ended.stderr
    assert len(model.asked) == 21


def test_an_answer_of_a_given_form_calls_none(
    specchat: Specchat, say: Callable[..., Caller], tmp_path: Path
) -> None:
    say("5")
    (tmp_path / "schema.json").write_text('{"type": "integer"}')
    schema = str(tmp_path / "schema.json")
    ended = specchat("ask", "What?", "--tools", "files", "--schema", schema)
    assert "the model calls no tools" in ended.stderr
    assert ended.stdout == "5\n"


@pytest.mark.slow
def test_chat_refuses_what_nobody_can_allow_and_keeps_calls_in_the_conversation(
    specchat: Specchat, say: Callable[..., Caller], calls: Path
) -> None:
    model = say(f"I call it.\n{ECHO}", "It was refused.")
    ended = specchat("chat", "--tools", "probe", stdin=b"What?\nAnd now?\n")
    assert ended.stdout == "I call it.\nIt was refused.\n" * 2
    assert calls.read_text() == "started\n"
    assert model.asked[-1].count("The user refused this call.") == 2
    assert model.asked[-1].count('"name": "probe.echo", "arguments": {"text": "hello"}') == 2


@pytest.mark.slow
def test_chat_asks_and_remembers_for_this_chat_alone(
    specchat: Specchat, say: Callable[..., Caller], calls: Path
) -> None:
    say(f"I call it.\n{ECHO}", "Done.")
    typed = b"One?\nnot now\nTwo?\nt\nThree?\n/new\nFour?\nno\n"
    ended = specchat("chat", "--tools", "probe", stdin=typed, on_terminal=True)
    assert ended.stderr.count("y = yes") == 3
    assert calls.read_text() == "started\n" + "echo hello\n" * 2
