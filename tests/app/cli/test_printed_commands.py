"""Every command line that the documentation prints runs as printed.

Each is read by the real command line, in a home of its own and in a folder that has what it names.
Quick: until a model would be loaded, a server started, the app opened or the machine measured.
Slow: to its end, with a model of one layer, where that takes seconds and no terminal; and scripts,
until they have read their arguments.
"""

import argparse
import itertools
import json
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from app.cli.main import app
from app.engine.engine import Engine
from app.history.store import History
from app.loading.checked_loader import CheckedLoader
from app.paths import Paths
from models import catalogue
from models.hub.progress import hub_cache
from models.hub.repository_cache import PART_SUFFIX
from tests.app.conftest import Specchat
from tests.fixtures.local_hub import LocalHub
from tests.fixtures.scripted import opened
from tests.fixtures.served_engine import post, serving
from tests.fixtures.speaker import HERMES, Speaker

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

ENDS, BEGINS = "to its end", "until it would begin"
HOW = {
    "acp": BEGINS,  # an editor starts it: tests/app/cli/test_acp.py does so
    "": BEGINS,  # the app wants a terminal: tests/endtoend opens it in one
    "ask": ENDS,
    "batch": ENDS,
    "bench": BEGINS,  # minutes, even with one layer
    "build cuda": BEGINS,  # half an hour of compiling
    "chat": ENDS,
    "chats export": ENDS,
    "chats list": ENDS,
    "chats remove": ENDS,
    "doctor": ENDS,
    "models info": ENDS,
    "models list": ENDS,
    "models pair": ENDS,
    "models pull": ENDS,
    "models remove": ENDS,
    "models train": BEGINS,  # minutes
    "models tune": BEGINS,  # minutes
    "path": ENDS,
    "rpc-server": BEGINS,  # until Ctrl+C: tests/app/cli/test_rpc_server.py ends it
    "serve": BEGINS,  # until Ctrl+C: tests/app/serve asks it
    "verify": BEGINS,  # minutes
}
"""How far each command is run in the slow test."""

OTHERS = {
    "cd": "the shell's",
    "curl": "its requests are sent below",
    "git": "no program of ours",
    "openssl": "no program of ours",
    "ssh": "no program of ours",
    "pip": "installs uv",
    "pytest": "these tests",
    "ruff": "checks the code, not a person's command",
    "lint-imports": "checks the code, not a person's command",
    "pyright": "checks the code, not a person's command",
    ".ci/run": "checks the code, not a person's command",
    "sudo": "changes a Mac",
    "umask": "the shell's",
    "uv sync": "installs; its extras and packages are looked up below",
    "uv tool": "installs; tests/app/test_distribution.py does so",
}
"""What is not run, and why."""

NAMES_ONLY = {"bench --html", "uv run", "uv tool", "uv"}
"""Code that names an option or a program, and is no command line."""

STANDS_FOR = {
    "CLIENT": "aider",
    "COMMAND": "ask",
    "FILE": "written",
    "FOLDER": "folder",
    "MEGABYTES": "1",
    "MODE": "plain",
    "MODEL": "mine",
    "N": "1",
    "NAME": "mine",
    "NUMBER": "1",
    "PROMPT": "Hi",
    "RULE": "ears",
    "SPEC": "lookup",
    "TARGET": "mine",
    "WORDS": "hello",
}
"""What a word in capitals stands for in our commands."""

COMMANDS: Any = typer.main.get_command(app)
for _name in COMMANDS.list_commands(None):
    COMMANDS.get_command(None, _name)  # it is imported when it is named

_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")
_OPTIONAL = re.compile(r"^\[([\w-]+)\]$")
_PLACEHOLDER = re.compile(r"[A-Z]{4,}|N")
_SHELL_ENDS = {"|", "&&", ";", "(", ")"}
_BEGINS_A_COMMAND = re.compile(r"(specchat|uv|python|git|pip|\.ci/run)( |$)")


@dataclass(frozen=True)
class Printed:
    """A command as printed, without what the shell does with it; said: its error, if printed."""

    words: tuple[str, ...]
    said: str = ""

    @property
    def text(self) -> str:
        return shlex.join(self.words)


def lines(page: str) -> Iterator[tuple[str, str]]:
    """Command lines of a page, each with the error printed below it."""
    for _, language, body in _FENCED.findall(page):
        block = body.replace("\\\n", " ").splitlines()
        if language not in ("", "sh", "text"):
            continue
        if language == "sh":
            block = _whole(block)
        for line, following in zip(block, [*block[1:], ""], strict=True):
            typed = line.strip().removeprefix("$ ")
            if language == "sh" or line.strip() != typed or typed.startswith("specchat "):
                yield typed, following if following.startswith("specchat: ") else ""
    for quoted in _INLINE.findall(_FENCED.sub("", page)):
        first, *more = quoted.split()
        code = " ".join([first, *more])
        of_ours = first in COMMANDS.commands and any(
            word.startswith("--") or _PLACEHOLDER.fullmatch(word.strip("[]")) for word in more
        )
        is_line = (of_ours or _BEGINS_A_COMMAND.match(code)) and "…" not in code
        if is_line and code not in NAMES_ONLY:
            yield (f"specchat {code}" if of_ours else code), ""


def _whole(block: list[str]) -> list[str]:
    """Lines of a shell's block, those of one quoted text joined."""
    whole: list[str] = []
    for line in block:
        is_open = whole and whole[-1].count("'") % 2
        whole = [*whole[:-1], f"{whole[-1]} {line}"] if is_open else [*whole, line]
    return whole


def commands(line: str, said: str = "") -> Iterator[Printed]:
    """The simple commands of a line, with and without what is optional."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    lexer.commenters, lexer.whitespace_split = "#", True
    simple: list[list[str]] = [[]]
    redirected = False
    for word in lexer:
        if word in _SHELL_ENDS:
            simple.append([])
        elif word in (">", "<"):
            redirected = True
        elif redirected:
            redirected = False
        elif simple[-1] or not re.match(r"\w+=", word):
            simple[-1].append(word)
    for words in filter(None, simple):
        if words[:2] == ["uv", "run"]:
            del words[: 4 if words[2:3] == ["--extra"] else 2]
        if any(map(_OPTIONAL.match, words)):
            yield Printed(tuple(word for word in words if not _OPTIONAL.match(word)), said)
        yield Printed(tuple(re.sub(_OPTIONAL, r"\1", word) for word in words), said)


def every() -> list[Printed]:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    found = {one for text in texts for line in lines(text) for one in commands(*line)}
    return sorted(found, key=lambda one: one.words)


EVERY = every()
OURS = [one for one in EVERY if one.words[0] == "specchat"]
SCRIPTS = [one for one in EVERY if one.words[:2] == ("python", "-m")]
REST = [one for one in EVERY if one not in OURS and one not in SCRIPTS]


def command_of(words: tuple[str, ...]) -> str:
    """Name of a command of ours, such as "models list"; "" for the app."""
    command, path = COMMANDS, list[str]()
    for word in words[1:]:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
        path.append(word)
    return " ".join(path)


def arguments_of(words: tuple[str, ...]) -> list[str]:
    """Arguments of a command of ours, with a real one for each word in capitals."""
    meant = [
        re.sub(r"^[A-Z]+(?=$|\.)", lambda word: STANDS_FOR.get(word[0], word[0]), word)
        for word in words[1:]
    ]
    unknown = [word for word in meant if _PLACEHOLDER.fullmatch(word)]
    assert not unknown, f"STANDS_FOR does not know {unknown}"
    return meant


_ASKED = {"custom_id": "1", "url": "/v1/completions", "body": {"prompt": "Hi"}}


class Begins(SystemExit):
    """The work would begin here."""

    def __init__(self, *_arguments: object, **_options: object) -> None:
        super().__init__(0)


def begin(*_arguments: object, **_options: object) -> None:
    raise Begins


Place = Callable[[Printed], None]


@pytest.fixture
def place(
    tmp_path: Path,
    tiny_llama: Callable[..., Path],
    local_hub: LocalHub,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    """Goes to a new home, and to a folder in which a command finds what it names."""
    tiny, number = tiny_llama(layers=1), itertools.count()
    cache = tmp_path / "cache"  # what is measured once
    cache.mkdir()
    entry = catalogue.find("qwen3-4b")
    assert entry is not None
    names = ("name-Q4_K_M.gguf", "name-Q8_0.gguf", "file.gguf")
    local_hub.repositories["org/name"] = dict.fromkeys(names, tiny.read_bytes())
    file = entry.file(entry.default_quantization)
    local_hub.repositories[entry.repository] = {file: tiny.read_bytes()}
    presets = _in_docs("use/settings.md", r"```toml\n(# Any of system.*?)```")
    schema = _in_docs("use/structured-output.md", r"```json\n(.*?)```")
    texts = {
        "book.json": schema,
        "yours.json": schema,
        "yes-or-no.gbnf": _in_docs("use/structured-output.md", r"a grammar: `(.*?)`"),
        "mine.txt": "Which way is north?",
        "in.jsonl": json.dumps(_ASKED),
        "question.jsonl": json.dumps({"category": "qa", "turns": ["Which way is north?"]}),
        "server.key": "0123456789abcdef" * 3,
        **dict.fromkeys(("yours.txt", "shop.py", "pyproject.toml"), "total = 1\n"),
    }
    monkeypatch.setenv("SPECCHAT_MAX_TOKENS", "3")
    monkeypatch.setenv("SPECCHAT_CTX", "256")

    def go(printed: Printed) -> None:
        here = tmp_path / str(next(number))
        for variable in ("SPECCHAT_HOME", "HF_HOME"):
            monkeypatch.setenv(variable, str(here / variable))
        paths = Paths.of_this_user()
        of_files = (here / name for name in ("docs", "folder", "heads"))
        for folder in (paths.models, paths.settings.parent, *of_files):
            folder.mkdir(parents=True, exist_ok=True)
        paths.cache.symlink_to(cache)
        monkeypatch.chdir(here)
        if not {"pull", "--print-config"} & {*printed.words}:  # of models that are not here yet
            _put_models(arguments_of(printed.words), paths.models, here, tiny)
        for name, text in texts.items():
            (here / name).write_text(text)
        paths.settings.write_text(presets.replace("max_tokens = 200", "max_tokens = 3"))
        with closing(History.open(paths.history)) as history:
            history.add(history.create("mine"), "user", "hello")
        part = hub_cache() / "models--org--name" / "blobs" / f"{'0' * 64}{PART_SUFFIX}"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"begun")

    return go


def _in_docs(page: str, form: str) -> str:
    found = re.search(form, (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found, f"{page} shows no {form}"
    return found[1]


def _put_models(arguments: list[str], folder: Path, here: Path, tiny: Path) -> None:
    """A file of one layer for the model, the drafter or the head that a command names."""
    for word in arguments:
        kind, _, name = word.rpartition(":")
        if entry := catalogue.find(name):
            (folder / entry.file(entry.default_quantization)).symlink_to(tiny)
        elif name.endswith(".gguf"):
            (here / name).symlink_to(tiny)
        elif "4bit" in name:
            (here / name).mkdir(parents=True)
            (here / name / "config.json").write_text('{"quantization": {"bits": 4}}')
            (here / name / "model.safetensors").write_bytes(b"")
        elif name == "mine" and not kind:
            (folder / "mine.gguf").symlink_to(tiny)


def _run(printed: Printed, specchat: Specchat, place: Place) -> str:
    """Run a command of ours; what it wrote."""
    place(printed)
    is_app = command_of(printed.words) == ""
    ended = specchat(*arguments_of(printed.words), stdin=b"Hi\n", on_terminal=is_app)
    written = ended.stdout + ended.stderr
    assert ended.returncode == (2 if printed.said else 0), f"{printed.text}: {written}"
    assert printed.said in ended.stderr
    assert "␊" not in written, f"{printed.text} shows a line break as one"
    return ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", HOW)
@pytest.mark.usefixtures("llamacpp")
def test_commands_of_ours_are_understood(
    name: str, specchat: Specchat, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.app_start.open_app", begin)
    monkeypatch.setattr("app.cli.commands.doctor.describe_engines", begin)
    monkeypatch.setattr("app.cli.commands.build.nvidia_cards", begin)
    monkeypatch.setattr("app.cli.commands.build.remove", begin)  # it may be of who runs this
    monkeypatch.setattr("typer.completion.install", lambda **_: ("bash", Path("written")))
    monkeypatch.setattr("backends.llamacpp.rpc.serve", begin)
    monkeypatch.setattr("app.engine.remote_session.open_remote", begin)
    monkeypatch.setattr("app.training.stages.open_arrays", begin)  # nothing that trains may be here
    monkeypatch.setattr(CheckedLoader, "load", begin)
    monkeypatch.setattr(Engine, "__init__", begin)
    for printed in OURS:
        if command_of(printed.words) == name:
            _run(printed, specchat, place)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, how in HOW.items() if how == ENDS])
@pytest.mark.usefixtures("llamacpp")
def test_commands_of_ours_do_their_work(name: str, specchat: Specchat, place: Place) -> None:
    for printed in OURS:
        if command_of(printed.words) == name:
            written = _run(printed, specchat, place)
            if "--json" in printed.words:
                assert json.loads(written)["schema"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("printed", SCRIPTS, ids=lambda one: one.text)
def test_a_script_is_understood(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Any = argparse.ArgumentParser.parse_args

    def reads(parser: argparse.ArgumentParser, *arguments: Any) -> None:
        read(parser, *arguments)
        raise Begins

    _, _, script, *arguments = printed.words
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", reads)
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    monkeypatch.delitem(sys.modules, script, raising=False)
    with pytest.raises(Begins):
        runpy.run_module(script, run_name="__main__")


def test_what_commands_of_others_name_is_in_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = [text.partition("==")[0] for text in project["dependencies"]]
    for words in (one.words for one in REST):
        for before, word in itertools.pairwise(words):
            assert before != "--extra" or word in project["optional-dependencies"]
            assert before != "--reinstall-package" or word in pinned
            extra = re.fullmatch(r"\.\[(\w+)\]", word)
            assert not extra or extra[1] in project["optional-dependencies"]


def test_a_request_is_answered(tmp_path: Path) -> None:
    sent = [one.words for one in REST if one.words[0] == "curl"]
    assert sent
    with serving(tmp_path, opened(Speaker(HERMES))) as server:
        for words in sent:
            (address,) = (word for word in words if word.startswith("http://127.0.0.1:8377/"))
            after = dict(itertools.pairwise(words))
            header, _, value = after["-H"].partition(": ")
            path = address.removeprefix("http://127.0.0.1:8377")
            answered = post(server, path, after["-d"].encode(), {header: value})
            assert answered.status == 200, answered.text


def test_every_command_is_known_and_no_other() -> None:
    """One that is new in the documentation is run, or OTHERS says why not."""
    assert {command_of(one.words) for one in OURS} == set(HOW)
    names = [{one.words[0], " ".join(one.words[:2])} & {*OTHERS} for one in REST]
    assert [one.text for one, known in zip(REST, names, strict=True) if not known] == []
    assert set().union(*names) == set(OTHERS)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("A=1 uv run specchat ask 'a # b' > c  # d", ["specchat ask 'a # b'"]),
        (
            "git diff | specchat ask && (specchat chat)",
            ["git diff", "specchat ask", "specchat chat"],
        ),
        ("specchat ask [PROMPT]", ["specchat ask", "specchat ask PROMPT"]),
    ],
)
def test_a_line_is_taken_apart(line: str, found: list[str]) -> None:
    assert [one.text for one in commands(line)] == found
