"""What a campaign sees of a program: its terminal, its home, and whether answers are kept."""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import sys
import termios
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psutil

# Runs specchat in a child process, forked from one that has already imported everything.
#
# It runs in a real pseudo-terminal or with pipes, and everything it shows is noted with its time.

COLUMNS, ROWS = 120, 40
_CONTROL = re.compile(r"\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|[PX^_\]].*?(\x1b\\|\x07)|[@-Z\\-_])")
_PATIENCE_SECONDS = 120.0
"""What must come comes sooner, also on a busy machine."""

_LONGEST_CONTROL = 24


class OverdueError(Exception):
    """What must come did not come."""


@dataclass(slots=True)
class Program:
    """A program at work. parts: what it wrote, without control sequences, with the time of each."""

    process: int
    terminal: int
    parts: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    raw: bytearray = field(default_factory=bytearray)
    children: list[psutil.Process] = field(default_factory=list[psutil.Process])
    _code: int | None = None
    _rest: bytes = b""

    def type(self, text: str) -> None:
        """Press keys."""
        with contextlib.suppress(OSError):
            os.write(self.terminal, text.encode())

    def read(self, seconds: float) -> bool:
        """Take what comes for some time; False once it has ended."""
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            ready, _, _ = select.select([self.terminal], [], [], max(left, 0.0))
            if ready:
                try:
                    came = os.read(self.terminal, 1 << 16)
                except OSError:  # Linux: nobody holds the other side any more
                    came = b""
                if not came:
                    return False
                self._take(came)
            elif left <= 0:
                return True

    def _take(self, came: bytes) -> None:
        """Note what came; a control sequence or a character that is cut waits for its rest."""
        self.raw += came
        begun = self._rest + came
        cut = max(begun.rfind(b"\x1b"), 0) if b"\x1b" in begun[-_LONGEST_CONTROL:] else len(begun)
        self._rest = begun[cut:]
        text = begun[:cut].decode(errors="replace")
        self.parts.append((time.monotonic(), _CONTROL.sub("", text)))

    def first(self, holds: Callable[[str], bool], since: float) -> float:
        """When what was shown since a time first was such; infinite if it never was."""
        text = ""
        for when, part in self.parts:
            if when >= since:
                text += part
                if holds(text):
                    return when
        return float("inf")

    def shown(self, until: float = float("inf"), since: float = 0.0) -> str:
        """What was shown in a time."""
        return "".join(text for when, text in self.parts if since <= when <= until)

    def wait_for(self, text: str, since: float = 0.0) -> None:
        """Go on until a text was shown.

        Raises:
            OverdueError: it did not come, or the program ended first.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        while text not in self.shown(since=since):
            if not self.read(0.02) or time.monotonic() > end:
                raise OverdueError(f"{text!r} was never shown: {self.shown()[-1500:]!r}")

    def end_by(self, number: int) -> float:
        """Send a signal, as a person or a system would; when it was sent."""
        with contextlib.suppress(psutil.Error):
            self.children = psutil.Process(self.process).children(recursive=True)
        sent = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, number)
        return sent

    def hang_up(self) -> float:
        """Close the terminal, as a window is closed; when it was closed."""
        with contextlib.suppress(psutil.Error):
            self.children = psutil.Process(self.process).children(recursive=True)
        closed = time.monotonic()
        os.close(self.terminal)
        self.terminal = os.open(os.devnull, os.O_RDWR)
        return closed

    def wait(self, seconds: float = _PATIENCE_SECONDS) -> int:
        """The exit code, as a shell tells it, once all was read.

        Raises:
            OverdueError: it goes on.
        """
        end = time.monotonic() + seconds
        while self.read(0.05) and time.monotonic() < end:
            pass
        while self._code is None:
            process, status = os.waitpid(self.process, os.WNOHANG)
            if process:
                ended = os.waitstatus_to_exitcode(status)
                self._code = ended if ended >= 0 else 128 - ended
            elif time.monotonic() > end:
                raise OverdueError(f"it goes on {seconds:.0f} s after it was told to end")
            else:
                select.select([], [], [], 0.005)
        return self._code

    def orphans(self, seconds: float = _PATIENCE_SECONDS) -> list[str]:
        """Child processes that go on after it."""
        _, alive = psutil.wait_procs(self.children, timeout=seconds)
        return [" ".join(one.cmdline()) for one in alive if one.is_running()]

    def close(self) -> None:
        """End it in any way and let go of the terminal."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.process, 0)
        os.close(self.terminal)


def import_all(modules: tuple[str, ...]) -> None:
    """Import what programs will need; no thread may run afterwards."""
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # pages that are shared with the programs stay so
    threads = psutil.Process().num_threads()
    if threads != 1:
        raise RuntimeError(f"{threads} threads run: a fork would be without them")


def start(
    run: Callable[[], object], arguments: list[str], environment: Mapping[str, str]
) -> Program:
    """Begin a program in a terminal of its own."""
    process, terminal = pty.fork()
    if process == 0:
        _become(run, arguments, environment)
    return Program(process, terminal)


def _become(
    run: Callable[[], object], arguments: list[str], environment: Mapping[str, str]
) -> None:
    """The child: what an interpreter that was just started has, then the program."""
    code = 1
    try:
        # Not by the parent, which may be slower than the program.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.environ.update(environment)
        sys.argv = arguments
        sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def half_written(home: Path) -> list[Path]:
    """Temporary files, which a program at work has and none may leave."""
    return [path for path in home.rglob(".*") if re.fullmatch(r"\..+\.\d+", path.name)]


def faults_of(home: Path) -> Iterator[str]:
    """What is wrong with the files below a home, in words."""
    for path in home.rglob("*"):
        if not path.is_file() or path.name.startswith("."):
            continue
        if path.name == "last-error.txt":
            yield f"a fault of specchat itself: {path.read_text()[-2000:]}"
            path.unlink()
        elif path.suffix == ".unusable":
            yield f"{path.name} was set aside"
            path.unlink()
        elif (opens := _reader(path)) and not opens(path):
            yield f"{path.name} is damaged"


def _reader(path: Path) -> Callable[[Path], bool] | None:
    by_folder = {"ngrams": _statistics, "self-drafts": _self_drafter}
    by_suffix = {".json": _json, ".state": _state, ".segment": _segment}
    if path.suffix in by_suffix:
        return by_suffix[path.suffix]
    return None if path.suffix == ".lock" else by_folder.get(path.parent.name)


def _json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def _state(path: Path) -> bool:
    from app.prompt_cache.saved_states import read_head, read_state

    head = read_head(path)
    return head is not None and read_state(head) is not None


def _statistics(path: Path) -> bool:
    from app.learned.ngram_memory import NgramFile, UnusableFileError

    data = path.read_bytes()
    model, n_vocab = data[12:36].decode("ascii"), int.from_bytes(data[36:40], "little")
    try:
        NgramFile(path, model, n_vocab).read()
    except UnusableFileError:
        return False
    return True


def _self_drafter(path: Path) -> bool:
    return path.stem.rpartition("-")[2] == str(path.stat().st_size)


def _segment(path: Path) -> bool:
    from decoding.drafters.retrieval.segment_file import SegmentError, is_sound, read_head

    try:
        return _result(is_sound(path, read_head(path, path.read_bytes()[12:44])))
    except SegmentError:
        return False


def _result(steps: Generator[None, None, bool]) -> bool:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


_STEP = re.compile(
    r"\x1b\[(?P<at>[0-9;]*)H|(?P<text>[^\x00-\x1f\x7f]+)"
    r"|\x1b(?:\[[0-9;?<>=]*[ -/]*[@-~]|[PX^_\]].*?(?:\x1b\\|\x07)|[@-Z\\-_])|.",
    re.DOTALL,
)

SYNCHRONISES = "\x1b[?2026;2$y"
"""What a terminal answers that shows whole pictures alone: each then ends in PICTURE_END."""

PICTURE_END = b"\x1b[?2026l"


class Screen:
    """The characters of a terminal; every one takes one cell."""

    def __init__(self, columns: int, rows: int) -> None:
        self._cells = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0
        self._begun = b""
        """A picture whose end has not come yet."""

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    def write(self, written: bytes) -> None:
        """Take over what a program wrote, up to the end of the last whole picture."""
        whole, _, self._begun = (self._begun + written).rpartition(PICTURE_END)
        for step in _STEP.finditer(whole.decode(errors="replace")):
            if step["text"]:
                self._put(step["text"])
            elif step["at"] is not None:
                row, _, column = step["at"].partition(";")
                self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
            elif step[0] == "\r":
                self._column = 0
            elif step[0] == "\n":
                self._row += 1

    def _put(self, text: str) -> None:
        if self._row < len(self._cells):
            row = self._cells[self._row]
            place = self._column
            row[place : place + len(text)] = text[: max(0, len(row) - place)]
        self._column += len(text)


QUESTION = re.compile(r"question x\d+x")
_LABEL = re.compile(r"‹(\d+)/\d+›$")
_COUNTING = re.compile(r"[\d █]+")
_CHAT_COLUMNS = 79
_BEGIN = re.compile(r" {0,2}[▌╭]")
"""A question, what is selected, or the prompt; a notice begins farther to the right."""

Seen = dict[tuple[str, int], int]
"""The highest number seen of each answer, by its question and its version (0: no label)."""


def note(lines: Sequence[str], seen: Seen) -> None:
    """Add what is on a screen."""
    question, version, highest = "", 0, 0
    for line in [*(line[:_CHAT_COLUMNS].rstrip() for line in lines), "╭"]:
        if _BEGIN.match(line):
            if question:
                key = question, version
                seen[key] = max(seen.get(key, 0), highest)
            asked = QUESTION.findall(line)
            is_clear = line.count("▌") == 1  # a second one is a notice, which may name another
            question = asked[-1] if asked and is_clear else ""
            version, highest = 0, 0
        elif _COUNTING.fullmatch(line):
            highest = max([highest, *map(int, re.findall(r"\d+", line))])
        elif label := _LABEL.search(line):
            version = int(label[1])


def add(more: Seen, seen: Seen) -> None:
    """Add what was seen at another moment."""
    for answer, highest in more.items():
        seen[answer] = max(seen.get(answer, 0), highest)


def faults(path: Path, seen: Seen, unsent: str) -> Iterator[str]:
    """What was seen and is not in the history, and answers there that have a hole, in words."""
    from scripts.models.counting_model import numbers  # NumPy's threads must not be forked

    saved = _saved(path)
    for (question, version), highest in seen.items():
        versions = saved.get(question)
        if versions is None:
            if question not in unsent:
                yield f"{question!r} is lost"
        elif highest:
            answers = [answer for one in versions for answer in one]
            if len(versions) == 1 and 0 < version <= len(versions[0]):
                answers = [versions[0][version - 1]]
            counts = [len(answer.split()) for answer in answers]
            if max(counts, default=0) < highest:
                yield f"of {question!r}, version {version}, {highest} was seen, saved: {counts}"
    for question, versions in saved.items():
        for answer in (answer for one in versions for answer in one):
            try:
                numbers(answer)
            except ValueError as error:
                yield f"an answer to {question!r} {error}"


def _saved(path: Path) -> Mapping[str, list[list[str]]]:
    """The answers to each question: a list for each message that asks it."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT number, parent, role, text FROM messages").fetchall()
        queued = connection.execute("SELECT text FROM queue").fetchall()
    found: dict[str, list[list[str]]] = {}
    texts = [*(text for (text,) in queued), *(row[3] for row in rows if row[2] == "user")]
    for text in texts:  # one that was taken back may have become part of another
        for question in QUESTION.findall(text):
            found.setdefault(question, [])
    for number, _, role, text in rows:
        if role == "user" and (asked := QUESTION.findall(text)):
            answers = [row[3] for row in rows if row[1] == number and row[2] == "assistant"]
            found[asked[-1]].append(answers)
    return found
