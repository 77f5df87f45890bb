"""Files that are too long for the context, in `ask` and `chat`: searched, or read in all."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.app.cli.test_interrupt import ctrl_c_after
from tests.app.cli.test_tools import ECHO, calls, say
from tests.app.conftest import Specchat
from tests.fixtures.caller import Caller

__all__ = ["calls", "ctrl_c_after", "say"]

NOTE = "two boats"
LINES = [f"Boat {number} is at the pier, and nobody knows for how long." for number in range(400)]
LINES[217] = "The heron nests in the harbour."


@pytest.fixture(autouse=True)
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.md").write_text("\n\n".join(LINES))


def _asked(model: Caller) -> list[str]:
    return [one.rpartition("<|im_start|>user\n")[2] for one in model.asked]


def _told(ended: CompletedProcess[str]) -> str:
    """What is said on standard error, without a status that stood there for a moment."""
    return ended.stderr.replace("\r\x1b[K", "")


def _parts(model: Caller) -> list[str]:
    return [one for one in _asked(model) if "This is part" in one]


def test_a_long_file_is_searched_and_that_is_said(
    specchat: Specchat, say: Callable[..., Caller]
) -> None:
    model = say("There. [1]")
    ended = specchat("ask", "Where does the heron nest?", "--file", "book.md")
    assert (ended.returncode, ended.stdout) == (0, "There. [1]\n")
    assert re.search(r"^\[1\] book.md, lines \d+ to \d+$", _told(ended), re.MULTILINE)
    assert re.search(r"^only \d+ of \d+ passages were read$", _told(ended), re.MULTILINE)
    assert LINES[217] in model.asked[-1]
    assert sum(line in model.asked[-1] for line in LINES) < len(LINES) / 2


def test_a_file_of_which_nothing_fits_is_told(
    specchat: Specchat, say: Callable[..., Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    say("There.")
    monkeypatch.setattr("app.dialogue.libraries.MOST_PASSAGES", 5)
    ended = specchat("ask", "Where is it?", "--file", "book.md", "--json")
    assert re.search(r"none of \d+ passages of book.md were read: ", _told(ended))
    assert json.loads(ended.stdout)["sources"] == []


def test_all_of_it_is_read_in_parts(specchat: Specchat, say: Callable[..., Caller]) -> None:
    model = say(NOTE)
    ended = specchat("ask", "How many boats?", "--file", "book.md", "--read-all")
    assert (ended.returncode, ended.stdout) == (0, f"{NOTE}\n")
    parts = _parts(model)
    assert len(parts) > 2
    assert all(sum(line in part for part in parts) == 1 for line in LINES)
    told = re.findall(r"^part (\d+) of (\d+)( · at most .* left)?", _told(ended), re.MULTILINE)
    assert [(int(one), int(of)) for one, of, _ in told] == [
        (number, len(parts)) for number in range(1, len(parts) + 1)
    ]
    assert told[1][2]  # the first part was timed
    assert _asked(model)[-1].count(NOTE) == len(parts)
    short = specchat("ask", "How many boats?", "--read-all")
    assert "no text is attached" in short.stderr


def test_a_stop_prints_the_notes_so_far(
    specchat: Specchat, say: Callable[..., Caller], ctrl_c_after: Callable[..., None]
) -> None:
    model = say(NOTE)
    command = ("ask", "How many boats?", "--file", "book.md", "--read-all")
    ctrl_c_after(4)  # within the first part
    ended = specchat(*command)
    assert (ended.returncode, ended.stdout) == (130, "")
    model.asked.clear()
    ctrl_c_after(len(NOTE) + 4)
    ended = specchat(*command)
    assert ended.returncode == 130
    assert ended.stderr.endswith("stopped in part 2 of 5\n")
    assert ended.stdout.startswith("notes on part 1 of ")
    assert ended.stdout.count(NOTE) == 1


def test_chat_reads_all_goes_on_after_a_stop_and_asks_about_long_files_later(
    specchat: Specchat, say: Callable[..., Caller], ctrl_c_after: Callable[..., None]
) -> None:
    model = say(NOTE)
    ctrl_c_after(2 * len(NOTE) + 4)  # the answer, a note, and within the next one
    typed = "/read all\n@book.md How many boats?\n/read all\n/read all\nAnd the heron?\n"
    ended = specchat("chat", stdin=typed.encode(), on_terminal=True)
    assert re.findall(r"\w.*", ended.stdout) == [NOTE] * 3
    assert "there is no question yet" in ended.stderr
    assert "stopped in part 2 of 5\n/read all goes on" in ended.stderr
    parts = _parts(model)
    told = re.findall(r"^part (\d+) of", ended.stderr.replace("\r\x1b[K", "\n"), re.MULTILINE)
    assert [*map(int, told)] == [1, 2, *range(2, len(parts) + 1)]  # none is read twice
    assert model.asked[-2].count(NOTE) >= len(parts)
    assert f"{NOTE}<|im_end|>" not in model.asked[-2]  # the answer before is not in it
    assert LINES[217] in model.asked[-1]


@pytest.mark.slow
def test_chat_calls_what_it_was_started_to_allow(
    specchat: Specchat, say: Callable[..., Caller], calls: Path
) -> None:
    say(ECHO, "Done.")
    allowed = ("chat", "--tools", "probe", "--allow", "probe.echo")
    specchat(*allowed, stdin=b"One?\n/new\nTwo?\n")
    assert calls.read_text() == "started\n" + "echo hello\n" * 2
