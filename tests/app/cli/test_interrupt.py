"""Ctrl-C: what was said is kept, the exit code is 130, and no traceback shows."""

import collections
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from app.bench.runner import Runner
from app.cli.terminal import interrupt
from decoding.text import TextStream
from tests.app.conftest import PATIENCE_SECONDS, Launch, Specchat

pytestmark = pytest.mark.usefixtures("llamacpp")


# Goes on and on, so that the signal never comes too late.
ENDLESS = ("ask", "--raw", "one two one two one two one two", "--temperature", "0")


@pytest.fixture
def ctrl_c_after(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the signal arrive in this process once so many steps were taken."""

    def arrange(steps: int, times: int = 1) -> None:
        taken = 0
        feed = TextStream.feed

        def counting(self: TextStream, token: int) -> str:
            nonlocal taken
            taken += 1
            if taken == steps:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)
            return feed(self, token)

        monkeypatch.setattr(TextStream, "feed", counting)

    return arrange


@pytest.mark.parametrize("times", [[0, 0, 0.02], [0, 0, 9, 9, 9.02]], ids=["run", "frozen"])
def test_a_process_that_was_frozen_after_the_signal_has_its_time_to_end_again(
    times: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, codes = times.copy(), list[int]()
    monkeypatch.setattr(interrupt, "time", Mock(monotonic=lambda: left.pop(0)))
    monkeypatch.setattr(interrupt, "process", Mock(abandon=codes.append))
    reading, writing = socket.socketpair()
    with reading, writing:
        writing.send(bytes([signal.SIGTERM]))
        interrupt._watch(reading, (signal.SIGTERM,), 0.01)
    assert codes == [128 + signal.SIGTERM]
    assert left == []


@pytest.mark.slow
def test_a_bench_that_ends_before_its_first_answer_has_no_table(
    specchat: Specchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Runner.run

    def interrupted(self: Runner) -> Iterator[tuple[int, int, str]]:
        signal.raise_signal(signal.SIGINT)
        yield from run(self)

    monkeypatch.setattr(Runner, "run", interrupted)
    ended = specchat("bench", "--threads", "1")
    assert ended.returncode == 130
    assert ended.stdout == ""
    assert "stopped before anything was measured" in ended.stderr


@pytest.mark.slow
def test_an_interrupted_answer_keeps_what_was_said(launch: Launch) -> None:
    process = launch(*ENDLESS, "--draft", "off", stdin=subprocess.DEVNULL)
    assert process.stdout is not None
    begun = process.stdout.read(6)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate()
    assert process.returncode == 130
    assert begun.strip()
    assert rest.endswith(b"\n")
    assert err == b""


def test_json_of_an_interrupted_answer_is_whole(
    specchat: Specchat, ctrl_c_after: Callable[..., None]
) -> None:
    ctrl_c_after(4)
    ended = specchat(*ENDLESS, "--draft", "off", "--json")
    report = json.loads(ended.stdout)
    assert ended.returncode == 130
    assert report["finish_reason"] == "cancelled"
    assert report["text"].strip()
    assert report["stats"]["completion_tokens"] == len(report["token_ids"]) == 4


def test_no_stream_prints_what_an_interrupted_answer_has(
    specchat: Specchat, ctrl_c_after: Callable[..., None]
) -> None:
    ctrl_c_after(4)
    ended = specchat(*ENDLESS, "--draft", "off", "--no-stream")
    assert ended.returncode == 130
    assert ended.stdout.strip()


def test_a_second_ctrl_c_ends_at_once(
    specchat: Specchat, ctrl_c_after: Callable[..., None]
) -> None:
    ctrl_c_after(4, times=2)
    ended = specchat(*ENDLESS, "--draft", "off")
    assert ended.returncode == 130
    assert ended.stdout.strip()


def test_ctrl_c_before_anything_is_loaded(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    # The interpreter then tells each module it has loaded.
    process = launch(*ENDLESS, "--draft", "off", stdin=subprocess.DEVNULL)
    assert process.stderr is not None
    while b"typer" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_ctrl_c_is_not_lost_while_the_engine_reports(
    specchat: Specchat, tiny_gguf: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived: list[str] = []

    class Interrupting(collections.deque[str]):
        """The engine's log, in the middle of which Ctrl-C arrives once."""

        def append(self, message: str, /) -> None:
            arrived.append(message)
            if len(arrived) == 1:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("backends.llamacpp.library._messages", Interrupting())
    path = tiny_gguf("warns.gguf")
    ended = specchat("ask", "hi", "--model", str(path), "--max-tokens", "400", "--raw")
    assert arrived, "the engine had nothing to report"
    assert ended.returncode == 130


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "shown"),
    [
        ((), "loading demo"),
        (("--draft", "self:q8_0"), "making the self-drafter"),
        (("--file", "long.txt", "--draft", "off"), "reading the prompt"),
    ],
)
def test_ctrl_c_before_the_answer(
    on_terminal: Callable[..., Any],
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
    shown: str,
) -> None:
    (tmp_path / "long.txt").write_text("one two three four " * 500, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    terminal = on_terminal(*ENDLESS, *more)
    terminal.read_until(shown)
    terminal.type("\x03")
    code, rest = terminal.end()
    assert code == 130
    assert "Traceback" not in rest
    assert not list((home / "cache" / "self-drafts").glob("*.partial*"))


STUCK = """
from threading import Event

from app.cli.terminal.interrupt import deferred

with deferred():
    print("stuck", flush=True)
    Event().wait()
"""


@pytest.mark.slow
def test_ctrl_c_ends_what_does_not_come_back() -> None:
    """As native code: the handler of the signal cannot end the wait."""
    command = [sys.executable, "-c", STUCK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"stuck\n"
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, err) == (130, b"")
