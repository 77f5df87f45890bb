"""Ways to run the command: in this process, as a process of its own, and on a terminal."""

import codecs
import io
import json
import math
import os
import select
import shutil
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any, cast

import gguf
import numpy as np
import pytest

from app.cli.main import main
from app.cli.terminal import stderr
from app.prompt_cache import state_keeper
from backends.chat.chat_template import ChatTemplate, Prompt
from backends.chat.message import Message, Tool
from scripts.models.counting_model import make

COMMAND = Path(sys.executable).with_name("specchat")
SIZE = (24, 80)
"""Lines and columns of terminals that tests open."""

PATIENCE_SECONDS = 120
"""How long a test waits for what must come, before it fails."""

# Runs in the child: Ctrl-C and a closed terminal end it even if whoever runs the tests, as under
# nohup, ignores them.
_PRELUDE = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(getattr(signal, "SIGHUP", signal.SIGTERM), signal.SIG_DFL)
{first}
os.execv(sys.argv[1], sys.argv[1:])
"""
_TAKE_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"

Specchat = Callable[..., CompletedProcess[str]]
AskJson = Callable[..., dict[str, Any]]
Launch = Callable[..., Popen[bytes]]
Write = Callable[[str], Path]


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What tests before this one measured of this machine."""
    return tmp_path_factory.mktemp("measured")


@pytest.fixture(autouse=True)
def _time_to_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy disk may take seconds for a prompt cache that is written at once elsewhere."""
    monkeypatch.setattr(state_keeper, "_CLOSE_SECONDS", 60.0)
    monkeypatch.setattr(state_keeper, "_CHANGE_SECONDS", 60.0)


@pytest.fixture(autouse=True)
def _no_progress_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, commands in this process write the same."""
    monkeypatch.setattr(stderr, "_PLAIN_LINE_SECONDS", math.inf)


@pytest.fixture(autouse=True)
def _measured_once(home: Path, measured: Path) -> Iterator[None]:
    """Every test has a home of its own; costs and bandwidth are measured by the first of them."""
    cache = home / "cache"
    shutil.copytree(measured, cache, dirs_exist_ok=True)
    yield
    for name in ("calibration", "bandwidth"):
        if (cache / name).is_dir():
            shutil.copytree(cache / name, measured / name, dirs_exist_ok=True)


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two small files, beside which the test runs."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "a.md").write_text("The dog is called Rex.")
    (folder / "b.md").write_text("The cat is called Minka.")
    return folder


@pytest.fixture
def bare_home(home: Path, _measured_once: None) -> Path:
    """A home that nothing has been written to; the folder itself is missing."""
    shutil.rmtree(home)
    return home


@pytest.fixture
def specchat(monkeypatch: pytest.MonkeyPatch) -> Specchat:
    """Runs the command in this process: specchat("ask", "hi", stdin=b"") -> exit code and texts.

    on_terminal: what it reads and writes takes itself for one.
    """

    def run(
        *arguments: str, stdin: bytes = b"", on_terminal: bool = False
    ) -> CompletedProcess[str]:
        streams = {"stdin": io.BytesIO(stdin), "stdout": io.BytesIO(), "stderr": io.BytesIO()}
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["specchat", *arguments])
            for name, stream in streams.items():
                text = io.TextIOWrapper(stream, encoding="utf-8", write_through=True)
                patch.setattr(text, "isatty", lambda: on_terminal, raising=False)
                patch.setattr(sys, name, text)
            with pytest.raises(SystemExit) as ended:
                main()
            out, err = (streams[name].getvalue().decode() for name in ("stdout", "stderr"))
        code = ended.value.code
        assert code is None or isinstance(code, int)
        assert "Traceback" not in err
        return CompletedProcess(arguments, code or 0, out, err)

    return run


@pytest.fixture
def ask_json(specchat: Specchat) -> Callable[..., dict[str, Any]]:
    """Asks with --json and returns the object; the command must succeed."""

    def ask(*arguments: str, stdin: bytes = b"") -> dict[str, Any]:
        ended = specchat("ask", *arguments, "--json", stdin=stdin)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    return ask


@pytest.fixture
def launch() -> Iterator[Launch]:
    """Starts the command as a process of its own, its three streams piped unless given.

    first is Python source to run in the child before the command takes its place; command is
    what to run in place of specchat.
    """
    with ExitStack() as stack:

        def start(
            *arguments: str | bytes,
            first: str = "",
            command: Sequence[str | Path] = (COMMAND,),
            **options: Any,
        ) -> Popen[bytes]:
            prelude = [sys.executable, "-S", "-E", "-c", _PRELUDE.format(first=first)]
            streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            begin = cast("Callable[..., Popen[bytes]]", Popen)
            process = begin([*prelude, *command, *arguments], **streams | options)
            stack.callback(_end, process)
            return process

        yield start


def _end(process: Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None and not stream.closed:
            stream.close()


class Terminal:
    """The command at work on a pseudo-terminal, as a person meets it."""

    def __init__(self, process: Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.descriptor = descriptor
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._unread = ""
        self.written = bytearray()
        """All that was written, byte by byte."""

    @property
    def seen(self) -> str:
        """All that was written."""
        return self.written.decode(errors="replace")

    def close(self) -> None:
        """Close the terminal, whatever runs in it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def read_until(self, text: str) -> str:
        """What appears up to and including text."""
        assert self.comes(text, PATIENCE_SECONDS), f"{text!r} never came after {self._unread!r}"
        before, found, self._unread = self._unread.partition(text)
        return before + found

    def comes(self, text: str, seconds: float) -> bool:
        """Whether text appears in time."""
        end = time.monotonic() + seconds
        while text not in self._unread and (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self.descriptor], [], [], left)
            shown = self._read() if ready else ""
            if ready and not shown:
                break
            self._unread += shown
        return text in self._unread

    def end(self) -> tuple[int, str]:
        """Exit code, and what still appeared until the command ended."""
        while shown := self._read():
            self._unread += shown
        rest, self._unread = self._unread, ""
        return self.process.wait(PATIENCE_SECONDS), rest

    def _read(self) -> str:
        ready, _, _ = select.select([self.descriptor], [], [], PATIENCE_SECONDS)
        assert ready, f"nothing more came after {self._unread!r}"
        try:
            written = os.read(self.descriptor, 65536)
        except OSError:  # Linux: nobody holds the other side any more
            return ""
        self.written += written
        return self._decoder.decode(written) or self._read()


@pytest.fixture
def on_terminal(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Starts the command on a pseudo-terminal of its own: on_terminal("chat") -> Terminal.

    first is as of launch; other options are those of Popen.
    """
    import pty
    import termios

    monkeypatch.setenv("TERM", "dumb")
    with ExitStack() as stack:

        def start(*arguments: str, first: str = "", **options: Any) -> Terminal:
            ours, theirs = pty.openpty()
            termios.tcsetwinsize(theirs, SIZE)
            process = launch(
                *arguments,
                first=f"{_TAKE_TERMINAL}\n{first}",
                start_new_session=True,
                **options,
                **dict.fromkeys(("stdin", "stdout", "stderr"), theirs),
            )
            os.close(theirs)
            terminal = Terminal(process, ours)
            stack.callback(terminal.close)
            return terminal

        yield start


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[list[Message]]:
    """Every conversation that was turned into a prompt, as it comes."""
    conversations: list[list[Message]] = []
    render = ChatTemplate.urgent_prompt

    def record(
        self: ChatTemplate, messages: Sequence[Message], tools: Sequence[Tool] = ()
    ) -> Prompt:
        conversations.append(list(messages))
        return render(self, messages, tools)

    monkeypatch.setattr(ChatTemplate, "urgent_prompt", record)
    return conversations


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that answers on and on, as fast as a person reads."""
    return str(make(tmp_path_factory.mktemp("counting") / "counting.gguf", 4096, 3))


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a GGUF file of one llama layer and 300 tokens: tiny_gguf("odd.gguf") -> its path."""

    def write(name: str, architecture: str = "llama") -> Path:
        path, width, n_vocab = tmp_path / name, 32, 300
        writer = gguf.GGUFWriter(path, architecture)
        writer.add_block_count(1)
        writer.add_context_length(512)
        writer.add_embedding_length(width)
        writer.add_feed_forward_length(width)
        writer.add_head_count(1)
        writer.add_head_count_kv(1)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("default")
        words = [f"tok{index}" for index in range(n_vocab - len(string.ascii_lowercase))]
        writer.add_token_list([*words, *string.ascii_lowercase])
        writer.add_token_types([gguf.TokenType.NORMAL] * n_vocab)
        writer.add_token_merges(["t o"])
        shapes = {
            "token_embd": (n_vocab, width),
            **{f"blk.0.attn_{part}": (width, width) for part in ("q", "k", "v", "output")},
            **{f"blk.0.ffn_{part}": (width, width) for part in ("gate", "up", "down")},
            **dict.fromkeys(("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"), (width,)),
        }
        for tensor, shape in shapes.items():
            writer.add_tensor(f"{tensor}.weight", np.ones(shape, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


@pytest.fixture
def write_settings(home: Path) -> Write:
    """Writes the settings file of this test's user."""

    def write(text: str) -> Path:
        path = home / "config" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write
