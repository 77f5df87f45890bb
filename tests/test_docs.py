"""The documentation agrees with the code: links, paths, modules, commands, settings and keys."""

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
import typer

from app.actions import ACTIONS
from app.cli.main import app
from app.settings.catalogue import KEYS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("[A-Z]*.md")), *sorted(DOCS.rglob("*.md"))]
COMMANDS: Any = typer.main.get_command(app)
for _name in COMMANDS.list_commands(None):
    COMMANDS.get_command(None, _name)  # it is imported when it is named
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")
_PATH = re.compile(
    r"(?<![\w./~])(?:app|backends|decoding|models|scripts|tests|docs|\.ci)/[\w./-]*\w"
)
_PACKAGE = re.compile(r"(?:app|backends|decoding|models|scripts|tests)(?:\.\w+)+")
_SCRIPT = re.compile(r"python -m ([\w.]+\w)(?![\w.…])([^`\n#]*)")
_COMMAND = re.compile(r"(?<![\w./-])specchat(?![^ \n])([^\n|&>]*)")
_OPTION = re.compile(r"--[a-z][\w-]*")

every_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix()
)


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    return _FENCED.sub("", _text(page))


def _inline(page: Path) -> list[str]:
    """Text between backticks, each on one line."""
    return [" ".join(code.split()) for code in _INLINE.findall(_prose(page))]


def _code(page: Path) -> str:
    """Everything set as code, inline or fenced."""
    return "\n".join([*_inline(page), *_FENCED.findall(_text(page))])


def _anchors(page: Path) -> Iterator[str]:
    """Anchors that GitHub gives the headings of a page."""
    for heading in _HEADING.findall(_prose(page)):
        words = re.sub(r"[^\w\- ]", "", _LINK.sub("", heading).lower())
        yield words.replace(" ", "-")


def _leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


def _module(name: str) -> Path | None:
    """File or folder of a module, None if there is none."""
    path = ROOT / name.replace(".", "/")
    return next((one for one in (path, path.with_suffix(".py")) if one.exists()), None)


def _options(command: Any) -> set[str]:
    """Options of a command and of its subcommands."""
    own = {"--help", *(name for one in command.params for name in one.opts)}
    return own.union(*map(_options, getattr(command, "commands", {}).values()))


def _is_command(line: str) -> bool:
    """Whether `specchat` accepts the commands and options of a line."""
    command, words = COMMANDS, shlex.split(line, comments=True)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if words and hasattr(command, "commands") and not words[0].startswith("-"):
        return words[0].isupper()
    return {word for word in words if _OPTION.fullmatch(word)} <= _options(command)


def _rows(page: Path, heading: str) -> list[list[str]]:
    """Cells of the first table below a heading, without its head; links become their text."""
    section = _text(page).split(f"\n## {heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", table[0]).replace("`", "")
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in plain.splitlines()[2:]]


@every_page
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    links = [link for link in _LINK.findall(_prose(page)) if not link.startswith("http")]
    assert [link for link in links if not _leads_somewhere(page, link)] == []


@every_page
def test_named_files_and_folders_exist(page: Path) -> None:
    assert [path for path in _PATH.findall(_code(page)) if not (ROOT / path).exists()] == []


@every_page
def test_named_modules_exist(page: Path) -> None:
    names = [code for code in _inline(page) if _PACKAGE.fullmatch(code)]
    assert [name for name in names if not (_module(name) or (ROOT / name).exists())] == []


@every_page
def test_scripts_exist_and_have_the_options_named(page: Path) -> None:
    for name, arguments in _SCRIPT.findall(_code(page)):
        script = _module(name)
        assert script is not None, name
        files = [script] if script.is_file() else [script / "__main__.py"]
        source = "".join(_text(file) for file in files)
        assert [
            option for option in _OPTION.findall(arguments) if f'"{option}"' not in source
        ] == []


@every_page
def test_commands_exist_and_have_the_options_named(page: Path) -> None:
    lines = _COMMAND.findall(_code(page))
    assert [line for line in lines if not _is_command(line)] == []


@every_page
def test_options_named_alone_exist(page: Path) -> None:
    others = [*(ROOT / "scripts").rglob("*.py"), ROOT / "tests" / "conftest.py"]
    known = _options(COMMANDS) | set(re.findall(r'"(--[\w-]+)"', "".join(map(_text, others))))
    alone = [
        option for code in _inline(page) if code[:2] == "--" for option in _OPTION.findall(code)
    ]
    assert [option for option in alone if option not in known] == []


def test_every_setting_is_described_as_in_the_file() -> None:
    rows = _rows(DOCS / "use" / "settings.md", "The file")
    assert [row[0] for row in rows] == [key.name for key in KEYS]
    assert [key.name for row, key in zip(rows, KEYS, strict=True) if row[2] != key.comment] == []


def test_every_key_is_described_as_in_the_app() -> None:
    rows = _rows(DOCS / "use" / "settings.md", "Keys")
    assert rows == [[one.name, one.keys, one.title] for one in ACTIONS if one.keys]


def test_every_page_is_in_the_index() -> None:
    index = DOCS / "README.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(_prose(index))}
    assert [page for page in DOCS.rglob("*.md") if page not in linked | {index}] == []


def test_the_example_of_a_drafter_works(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    text = _text(ROOT / "CONTRIBUTING.md")
    drafter, law, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    module = ModuleType("decoding.drafters.again")
    exec(dedent(drafter), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    test = dict[str, Any]()
    exec(dedent(law), test)
    request.getfixturevalue("symbolic")
    test["test_the_law_is_the_models_own"]()
