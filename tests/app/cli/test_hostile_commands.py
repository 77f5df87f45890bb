"""Every command on a terminal, with texts that would drive it wherever a text can come from."""

import contextlib
import io
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess

import click
import pytest

from app import printable as rule
from app.cli.main import main
from app.cli.terminal import process, stderr
from app.history import History
from app.paths import Paths
from tests.fixtures.hostile import MARK, TEXTS, UNENCODABLE
from tests.fixtures.hostile_model import write_hostile_model
from tests.fixtures.written import Written, by_command


def _can_be_name(text: str) -> bool:
    with contextlib.suppress(UnicodeEncodeError):
        return not {*b"/\0"} & {*os.fsencode(text)}
    return False


NAMES = [text for text in (*TEXTS, *UNENCODABLE) if _can_be_name(text)]
ALL = "".join(NAMES)
NAME = "evil\x1b]0;PWN\x07\x9b2J\u202e\n\tPWN"
"""For one place: every kind of control in one name."""

Run = Callable[..., Written]


class _Screen(io.BytesIO):
    """What is written to both streams, in order."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a command whose output goes to a terminal: run("chats", "list") -> what was written."""
    monkeypatch.chdir(tmp_path)

    def start(*arguments: str, stdin: bytes = b"") -> Written:
        screen = _Screen()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["specchat", *arguments])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
            for name in ("stdout", "stderr"):
                text = io.TextIOWrapper(screen, encoding="utf-8", write_through=True)
                patch.setattr(sys, name, text)
            with pytest.raises(SystemExit):
                main()
            return by_command(screen.getvalue())

    return start


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers, and calls itself, what would drive a terminal."""
    path = tmp_path_factory.mktemp("hostile") / "model.gguf"
    return write_hostile_model(path, TEXTS, NAME)


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chats whose titles and messages would drive a terminal."""
    path = tmp_path_factory.mktemp("hostile") / "chats.sqlite3"
    with closing(History.open(path)) as history:
        for text in TEXTS:
            number = history.create(text, text)
            history.add(number, "user", text)
            history.add(number, "assistant", ALL, text)
            history.rename(number, f"{text}\n{text}")
    return path


@pytest.fixture
def hostile_home(home: Path, model: Path, chats: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Chats, models and settings, all of them named to do harm."""
    paths = Paths.of_this_user()
    paths.models.mkdir(parents=True)
    for name in NAMES:
        os.link(model, paths.models / f"{name}.gguf")
    shutil.copy(chats, paths.history)
    paths.config.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("SPECCHAT_DRAFT", "off")
    return home


COMMANDS = {
    "chats list": ["chats", "list"],
    "chats list of words": ["chats", "list", ALL],
    "chats show": ["chats", "show", "1"],
    "chats export": ["chats", "export", "1", f"{NAME}.md"],
    "chats export to another kind": ["chats", "export", "1", f"{NAME}.pdf"],
    "chats remove": ["chats", "remove", "1"],
    "models list": ["models", "list"],
    "models info": ["models", "info", NAMES[0]],
    "models info of a missing file": ["models", "info", f"{NAME}.gguf"],
    "models info of an unknown name": ["models", "info", NAME],
    "models remove": ["models", "remove", NAME],
    "models pull": ["models", "pull", NAME, "--offline"],
    "models pull from a repository": ["models", "pull", f"maker/{NAME}", "--offline"],
    "models pair": ["models", "pair", NAME],
    "models tune": ["models", "tune", NAME],
    "doctor": ["doctor"],
    "path of nothing": ["path", NAME],
    "unknown command": [NAME],
    "unknown option": [f"--{NAME}"],
    "unknown option of a command": ["ask", f"--{NAME}"],
    "ask without a file": ["ask", "hi", "--file", f"{NAME}.txt"],
    "ask without the model": ["ask", "hi", "--model", f"{NAME}.gguf"],
    "ask with an unknown backend": ["ask", "hi", "--backend", NAME],
    "ask with an unknown drafter": ["ask", "hi", "--draft", NAME],
    "ask with an unknown rule": ["ask", "hi", "--lossy", NAME],
    "bench of an unknown suite": ["bench", "--suite", NAME],
    "bench into a folder that is missing": ["bench", "--html", f"{NAME}/page.html"],
    "verify": ["verify", "--model", f"{NAME}.gguf", "--draft", "lookup"],
}
QUOTED = {
    "path of nothing",
    "unknown command",
    "models remove",
    "ask with an unknown backend",
    "ask with an unknown rule",
    "bench of an unknown suite",
}
"""What these say of a name, they say as Python writes a text: harmless without the rule."""


def _check(written: Written) -> None:
    assert written.strange == ()
    assert MARK in written.text.upper()
    assert "Traceback" not in written.text


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_lets_a_sequence_through(run: Run, hostile_home: Path, command: str) -> None:
    _check(run(*COMMANDS[command]))


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - QUOTED))
def test_without_the_rule_it_would(
    run: Run, hostile_home: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _switch_off(monkeypatch)
    assert run(*COMMANDS[command]).strange


def _switch_off(patch: pytest.MonkeyPatch) -> None:
    def as_it_is(text: str) -> str:
        return text

    rules = (rule.printable, rule.one_line)
    for module in [one for name, one in sys.modules.items() if name.startswith("app.")]:
        for name, held in list(vars(module).items()):
            if any(held is one for one in rules):
                patch.setattr(module, name, as_it_is)


@pytest.mark.parametrize("name", ["SPECCHAT_MODEL", "SPECCHAT_BACKEND", "SPECCHAT_LOSSY"])
def test_variables(
    run: Run, hostile_home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, f"{NAME}.gguf")
    _check(run("ask", "hi"))


def test_a_folder_of_ones_own(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path / NAME))
    _check(run("path", "models"))
    _check(run("doctor"))


@pytest.mark.parametrize(
    "text",
    [f'"{rule.one_line(NAME)}" = 1', f"model = {json.dumps('PWN' + ALL[:400])}", "PWN\x1b[2J"],
)
def test_settings(run: Run, hostile_home: Path, text: str) -> None:
    Paths.of_this_user().settings.write_text(text, encoding="utf-8", errors="replace")
    for command in (["ask", "hi"], ["doctor"]):
        written = run(*command)
        assert written.strange == ()


@pytest.mark.parametrize(
    "command",
    [
        ["chats", "list"],
        ["chats", "show", "1"],
        ["models", "list"],
        ["models", "info", NAMES[0]],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_json_is_printable_too(run: Run, hostile_home: Path, command: list[str]) -> None:
    written = run(*command, "--json")
    assert written.strange == ()
    held = json.dumps(json.loads(written.text))
    assert "\\u001b]0;PWN" in held
    assert "\\u202e" in held


def test_a_name_begins_no_line_of_an_error(run: Run) -> None:
    models = Paths.of_this_user().models
    models.mkdir(parents=True)
    (models / "two\nspecchat: forged.gguf").write_bytes(b"GGUF")
    shown = run("ask", "hi", "--model", "two specchat").text
    assert "forged" in shown
    assert not any(line.startswith("specchat: forged") for line in shown.splitlines())


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_whoever_writes(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """Logs, Python's own messages and click, on terminals of other encodings too."""
    screen = _Screen()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(screen, encoding=encoding))
    process.prepare()
    print(ALL, file=sys.stderr)
    print(ALL)
    click.echo(ALL)
    click.echo(ALL, err=True)
    sys.stderr.writelines([ALL, ALL])
    assert logging.lastResort is not None
    logging.lastResort.handle(logging.makeLogRecord({"msg": ALL, "levelno": logging.ERROR}))
    sys.excepthook(ValueError, ValueError(ALL), None)
    stderr.status(ALL)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    written = screen.getvalue()
    assert written.count(MARK.encode()) > 8 * ALL.count(MARK)
    assert by_command(written.decode(encoding).encode()).strange == ()


@pytest.mark.usefixtures("llamacpp")
class TestAnswers:
    """Answers of a model, by the engine itself."""

    ASK = ("ask", "hi", "--temperature", "0", "--max-tokens", "100")

    def test_ask(self, run: Run, hostile_home: Path, model: Path) -> None:
        for more in ([], ["--no-stream"]):
            written = run(*self.ASK, *more, "--model", str(model))
            _check(written)
            assert rule.printable("".join(TEXTS)) in written.text.replace("\r", "")

    def test_what_a_template_raises(self, run: Run, tmp_path: Path) -> None:
        template = "{{ raise_exception('PWN\x1b]0;PWN\x07') }}"
        model = write_hostile_model(tmp_path / "raises.gguf", TEXTS, NAME, template)
        _check(run(*self.ASK, "--model", str(model)))

    def test_ask_in_json(self, run: Run, hostile_home: Path, model: Path) -> None:
        written = run(*self.ASK, "--json", "--model", str(model))
        assert written.strange == ()
        answer = written.text[written.text.index("{") :]
        assert json.JSONDecoder().raw_decode(answer)[0]["text"] == "".join(TEXTS)

    def test_chat(self, run: Run, hostile_home: Path, model: Path) -> None:
        typed = f"hi\n/{NAME}\n/set {NAME}\n/set temperature {NAME}\n/stats\n".encode()
        options = ("--temperature", "0", "--max-tokens", "100", "--model", str(model))
        written = run("chat", *options, stdin=typed)
        _check(written)
        assert rule.printable("".join(TEXTS)) in written.text.replace("\r", "")

    def test_without_the_rule(
        self, run: Run, hostile_home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _switch_off(monkeypatch)
        assert len(run(*self.ASK, "--model", str(model)).strange) >= len(TEXTS)

    def test_a_pipe_gets_what_was_said(
        self, specchat: Callable[..., CompletedProcess[str]], hostile_home: Path, model: Path
    ) -> None:
        ended = specchat(*self.ASK, "--model", str(model))
        assert ended.stdout == "".join(TEXTS) + "\n"
        assert by_command(ended.stderr.encode()).strange == ()

    def test_a_model_whose_name_is_in_another_encoding(
        self, run: Run, hostile_home: Path, model: Path
    ) -> None:
        name = "half\udc9b\udcff"
        path = Paths.of_this_user().models / f"{name}.gguf"
        os.link(model, path)
        _check(run(*self.ASK, "--model", str(path)))
        _check(run(*self.ASK))  # the model used last
        assert run("chat", "--model", name, stdin=b"hi\n").strange == ()
