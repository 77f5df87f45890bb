"""`specchat chat` through pipes: messages and commands line by line."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli.commands import chat
from app.engine.session import Session
from app.loading.session_options import SessionOptions
from app.loading.streaming import AgreedModels, Outlook, Share, StreamOfferError
from app.paths import Paths
from backends.base import OutOfMemoryError
from backends.chat.message import Message
from decoding.events import Prefill
from tests.app.conftest import Specchat

pytestmark = pytest.mark.usefixtures("llamacpp")

CHAT = ("chat", "--temperature", "0", "--max-tokens", "6", "--draft", "off")


@pytest.mark.slow
def test_each_line_is_answered_in_turn(specchat: Specchat, said: list[list[Message]]) -> None:
    ended = specchat(*CHAT, stdin=b"Say one.\nSay two.\n")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [[turn.role for turn in turns] for turns in said] == [
        ["user"],
        ["user", "assistant", "user"],
    ]
    answer = said[1][1].content
    assert answer.strip()
    assert ended.stdout.startswith(f"{answer}\n")
    assert len(ended.stdout) > len(answer) + 2


@pytest.mark.slow
def test_a_second_message_reads_only_what_is_new(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached: list[int] = []
    stream = Session.stream

    def record(self: Session, *arguments: object, **options: object) -> object:
        for event in stream(self, *arguments, **options):  # pyright: ignore[reportArgumentType]
            if isinstance(event, Prefill):
                cached.append(event.cached)
            yield event

    monkeypatch.setattr(Session, "stream", record)
    specchat(*CHAT, stdin=b"Say one.\nSay two.\n")
    first, second = cached
    assert first == 0
    assert second > 20


def test_system_stays_when_the_conversation_starts_over(
    specchat: Specchat, said: list[list[Message]]
) -> None:
    ended = specchat(*CHAT, "--system", "Be brief.", stdin=b"one\n/new\ntwo\n")
    assert "A new chat." in ended.stderr
    assert said[1] == [Message("system", "Be brief."), Message("user", "two")]


def test_commands_answer_on_standard_error(specchat: Specchat, said: list[list[Message]]) -> None:
    ended = specchat(*CHAT, stdin=b"/stats\n/help\n/hlep\n/quit\nnever sent\n")
    assert (ended.returncode, ended.stdout, said) == (0, "", [])
    assert "no answer yet" in ended.stderr
    assert "No command /hlep." in ended.stderr
    assert ended.stderr.count("/quit") >= 2


def test_what_is_set_holds_from_the_next_answer_on(
    specchat: Specchat, said: list[list[Message]]
) -> None:
    changed, back = b"/set max_tokens 3\n/set system Be kind.\n", b"/set max_tokens\n/set system\n"
    lines = changed + b"one\n/stats\n" + back + b"two\n/stats\n"
    ended = specchat(*CHAT, "--system", "Be brief.", stdin=lines)
    assert ended.returncode == 0
    cut, usual = map(int, re.findall(r"\[(\d+) tokens", ended.stderr))
    assert cut == 3 < usual <= 6  # the model may end its answer before
    assert [turns[0].content for turns in said] == ["Be kind.", "Be brief."]


def test_a_lossy_rule_that_is_set_is_warned_of_once(specchat: Specchat) -> None:
    lines = b"/set temperature 1\n/set lossy ears\n/set top_k 3\n/set lossy\n"
    ended = specchat(*CHAT, stdin=lines)
    assert (ended.returncode, ended.stderr.count("answers may be lossy")) == (0, 1)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("/set", "which setting?"),
        ("/set model demo", "'model' cannot be set here"),
        ("/set temperature hot", "temperature cannot be 'hot'"),
        ("/set top_p 2", "top_p cannot be 2.0"),
        ("/settings", "No command /settings."),
    ],
)
def test_what_cannot_be_set_is_told_and_changes_nothing(
    specchat: Specchat, typed: str, told: str
) -> None:
    ended = specchat(*CHAT, stdin=f"{typed}\none\n/stats\n".encode())
    assert told in ended.stderr
    assert "[6 tokens · " in ended.stderr


def test_stats_are_of_the_last_answer(specchat: Specchat) -> None:
    ended = specchat(*CHAT, stdin=b"one\n/stats\n")
    assert re.search(
        r"\[6 tokens · [\d.]+ s · [\d.,]+ tok/s · .*cut at --max-tokens\]", ended.stderr
    )


@pytest.mark.slow
def test_a_message_names_files_as_in_the_app(
    specchat: Specchat, said: list[list[Message]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.md").write_bytes(b"\xef\xbb\xbfwalrus\r\n")
    monkeypatch.chdir(tmp_path)
    ended = specchat(*CHAT, stdin="请总结@notes.md。 (@missing.md)\n".encode())
    assert said[0][-1].content == "notes.md:\n```\nwalrus\n```\n\n请总结@notes.md。 (@missing.md)"
    assert ended.stderr == "note: no file missing.md: the message goes without it\n"


def test_blank_lines_are_no_messages(specchat: Specchat, said: list[list[Message]]) -> None:
    ended = specchat(*CHAT, stdin=b"\n   \n\n")
    assert (ended.returncode, ended.stdout, said) == (0, "", [])


@pytest.mark.parametrize("end", [b'"""\n', b""])
def test_lines_between_triple_quotes_are_one_message(
    specchat: Specchat, said: list[list[Message]], end: bytes
) -> None:
    specchat(*CHAT, stdin=b'"""\ndef f():\n    /quit\n\n    return 1\n' + end)
    assert [turns[-1].content for turns in said] == ["def f():\n    /quit\n\n    return 1"]


@pytest.mark.slow
def test_windows_line_ends_and_a_last_line_without_one(
    specchat: Specchat, said: list[list[Message]]
) -> None:
    specchat(*CHAT, stdin="Grüße\r\n日本".encode())
    assert [turns[-1].content for turns in said] == ["Grüße", "日本"]


@pytest.mark.slow
@pytest.mark.parametrize("bad", [b"a\0b", b"caf\xe9", b"\xed\xa0\x80"])
def test_a_line_that_is_not_text_is_told_and_the_rest_answered(
    specchat: Specchat, said: list[list[Message]], bad: bytes
) -> None:
    ended = specchat(*CHAT, stdin=b"one\n" + bad + b"\ntwo\n")
    assert ended.returncode == 2
    assert "line 2 of standard input" in ended.stderr
    assert [turns[-1].content for turns in said] == ["one", "two"]


def test_a_line_that_is_not_text_spoils_its_block_alone(
    specchat: Specchat, said: list[list[Message]]
) -> None:
    ended = specchat(*CHAT, stdin=b'"""\none\n\xff\ntwo\n"""\nthree\n')
    assert ended.returncode == 2
    assert [turns[-1].content for turns in said] == ["three"]


def test_lines_are_counted_on_after_one_that_is_not_text(specchat: Specchat) -> None:
    ended = specchat(*CHAT, stdin=b"/help\n\xff\n/help\n\xff\n")
    assert "line 2 of standard input" in ended.stderr
    assert "line 4 of standard input" in ended.stderr


@pytest.mark.slow
def test_the_oldest_turns_make_room_and_that_is_said(
    specchat: Specchat, said: list[list[Message]]
) -> None:
    message = "one two three four five six seven eight"
    ended = specchat(
        *CHAT, "--ctx", "96", stdin=f"first {message}\n{message}\n{message}\n".encode()
    )
    assert ended.returncode == 0
    assert "the context is full; left out: the oldest " in ended.stderr
    assert said[-1][0].role == "user"
    assert not said[-1][0].content.startswith("first")


@pytest.mark.slow
def test_a_message_that_can_never_fit_is_refused_and_the_rest_answered(
    specchat: Specchat, said: list[list[Message]]
) -> None:
    ended = specchat(*CHAT, "--ctx", "200", stdin=b"one\n" + b"two " * 300 + b"\nthree\n")
    assert ended.returncode == 2
    assert "too many" in ended.stderr
    assert [said[-1][0].content, said[-1][-1].content] == ["one", "three"]
    assert not any("two two" in turn.content for turn in said[-1])


def test_without_a_terminal_the_bare_command_gives_a_hint(specchat: Specchat) -> None:
    ended = specchat()
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "specchat ask" in ended.stderr
    assert "specchat chat" in ended.stderr


@pytest.mark.parametrize(("answer", "agrees"), [("y", True), ("", False), ("no", False)])
def test_a_model_larger_than_memory_is_asked_about_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, agrees: bool
) -> None:
    refusal = OutOfMemoryError("big needs 1.2 GB", "0.9 GB are free", "Choose another.")
    path = tmp_path / "big.gguf"
    outlook = Outlook(Share(600_000_000, 590_000_000))
    agreed = AgreedModels(Paths.of_this_user().agreed_models)

    def open_session(_: SessionOptions) -> str:
        if not agreed.has(path):
            raise StreamOfferError(refusal, "big", path, outlook)
        return "the session"

    monkeypatch.setattr(chat, "open_answerer", open_session)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    for stream in ("stdin", "stderr"):
        monkeypatch.setattr(getattr(chat.sys, stream), "isatty", lambda: True, raising=False)
    if not agrees:
        with pytest.raises(StreamOfferError, match="big needs"):
            chat._opened(SessionOptions())
    else:
        assert chat._opened(SessionOptions()) == "the session"
    assert agreed.has(path) is agrees


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


@pytest.mark.slow
def test_folders_are_read_for_each_message(
    specchat: Specchat, said: list[list[Message]], tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("The dog is called Rex.")
    lines = f"Who?\nAnd now?\n/folder off\n/new\nHm?\nWho is in @{tmp_path}/notes/?\n/folder x\n"
    ended = specchat(*CHAT, "--folder", str(tmp_path / "notes"), stdin=lines.encode())
    held = ["called Rex" in turns[-1].content for turns in said]
    assert held == [True, False, False, True]
    assert "no folder x" in ended.stderr
    assert specchat(*CHAT, "--folder", "nowhere").returncode == 2


@pytest.mark.slow
def test_passages_that_were_read_are_told_after_the_answer(
    specchat: Specchat, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    text = "".join(f"The dog number {n} is called Rex.\n\n" for n in range(200))
    (tmp_path / "notes" / "a.md").write_text(text)
    folder = ("--ctx", "1024", "--folder", str(tmp_path / "notes"))
    ended = specchat(*CHAT, *folder, stdin=b"Who is dog 7?\n")
    assert re.search(r"^\[1\] notes/a.md, lines \d+ to \d+$", ended.stderr, re.MULTILINE)
