"""Presets and prompts: files that people write, copy and share, and some of specchat's own.

One in a folder of the configuration comes before specchat's own of the same name. One that cannot
be read or written raises a UsageError.
"""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.actions import BY_SLASH
from app.paths import Paths, entries
from app.printable import one_line
from app.settings import file
from app.settings.catalogue import MODEL, SYSTEM, Value, known
from backends.base import SpecchatError, UsageError
from backends.base.safe_files import explained, make_private_folder, read_text, write_whole
from models.bounded_files import parse_toml

NO_PRESET = "off"
PROMPTS = "prompts"
"""The folder of prompts, beside the settings file."""

_SHIPPED = Path(__file__).with_name("library")
_MOST_FILES = 1000
"""Files of a folder after which the rest is left out: it holds something else."""

_NAME = re.compile(r"\w(?:[\w .-]{0,46}[\w-])?")
_COMMAND = re.compile(r"\w[\w.:-]*")
_CALL = re.compile(rf"/({_COMMAND.pattern})(?!\S)")
_HEAD = re.compile(r"---\n(.*?)\n---(?:\n+|\Z)", re.DOTALL)
_DESCRIPTION = re.compile(r"^description:\s*(.+)$", re.MULTILINE)
_PLACE = re.compile(r"(\$?)\$(?:ARGUMENTS|([1-9]))\b")
_WORD = re.compile(r"\"([^\"]*)\"|'([^']*)'(?!\S)|\[[^\]]*\]|\S+")
"""An argument: a word, several in quotes, or what stands for a paste."""


def _files(folder: Path, ending: str) -> dict[str, Path]:
    paths = sorted(Path(entry.path) for entry in entries(folder))
    usable = [path for path in paths if path.suffix == ending and path.stem[0] != "."]
    return {path.stem: path for path in usable[:_MOST_FILES]}


@contextmanager
def of_preset(name: str) -> Generator[None]:
    """Tell which preset names what cannot be used; of none if the name is empty."""
    try:
        yield
    except SpecchatError as error:
        if not name:
            raise
        raise UsageError(f"preset {name}: {error.summary}", "", error.remedy) from error


def _text(path: Path) -> str:
    with explained(f"cannot read {path}"):
        return read_text(path, file.MOST_BYTES)


@dataclass(frozen=True, slots=True)
class Presets:
    """Settings of a chat by name: of a folder's files, of a settings file's table, or shipped."""

    folder: Path
    table: Mapping[str, Mapping[str, Value]]

    @classmethod
    def of(cls, paths: Paths) -> "Presets":
        """Those of this user; what cannot be used of the settings file is left out."""
        table = file.examined(paths.settings)[0].get(file.PRESETS_TABLE, {})
        return cls(paths.presets, table)

    def _all(self) -> dict[str, Path | Mapping[str, Value]]:
        shipped, own = (_files(one, ".toml") for one in (_SHIPPED / "presets", self.folder))
        return {**shipped, **self.table, **own}

    def names(self) -> list[str]:
        return sorted(self._all())

    def get(self, name: str) -> dict[str, Value]:
        found = self._all()
        source = found[known(name, found, f"no preset {name!r}")]
        if not isinstance(source, Path):
            return dict(source)
        try:
            values = parse_toml(_text(source))
        except ValueError as error:
            remedy = "Mend it, or choose another preset."
            raise UsageError(f"cannot read {source}", str(error), remedy) from error
        for key, value in values.items():
            file.check(key, f"{file.PRESETS_TABLE}.{name}", key, value, source)
        return values

    def about(self, name: str) -> str:
        """The comment that a preset's file begins with, a line, then its instructions, another.

        One line says what is wrong with a file that cannot be used.
        """
        source = self._all().get(name)
        try:
            system = one_line(str(self.get(name).get(SYSTEM, "")))
            comment = _text(source).partition("\n")[0] if isinstance(source, Path) else ""
        except SpecchatError as error:
            return f"✕ {one_line(error.summary)}"
        return f"{one_line(comment[1:]).strip()}\n{system}" if comment[:1] == "#" else system

    def path(self, name: str) -> Path:
        """The file that a preset is saved in; not every name can be one."""
        if not _NAME.fullmatch(name) or name.lower() == NO_PRESET:
            why = f"a name has letters, digits, blanks, - and _, and is not {NO_PRESET}"
            raise UsageError(f"no preset can be named {name!r}", why)
        return self.folder / f"{name}.toml"

    def text(self, name: str, values: Mapping[str, Value]) -> str:
        """A file with these values, and the model of the preset that it replaces."""
        import tomlkit

        before = self.get(name) if name in self.names() else {}
        kept = {MODEL: before[MODEL]} if MODEL in before else {}
        document = tomlkit.document()
        for key, value in {**values, **kept}.items():
            is_long = "\n" in str(value) and "\r" not in str(value) and str(value)[0] != "\n"
            item = tomlkit.string(str(value), multiline=True) if is_long else tomlkit.item(value)
            document[key] = item if value != "" else item.comment("none, whatever a chat had")
        return tomlkit.dumps(document)


def content(path: Path) -> str | None:
    """The text of a file, None if there is none."""
    return _text(path) if path.exists() else None


def put(path: Path, text: str | None) -> None:
    """Write a file, or remove it if there is no text."""
    with explained(f"cannot write {path}"):
        make_private_folder(path.parent)
        if text is None:
            path.unlink(missing_ok=True)
        else:
            write_whole(path, text)


# Prompts: /NAME ARGUMENTS in place of a text that is asked often.


def prompts(folder: Path) -> dict[str, Path]:
    """Files of prompts by the name of their command; built-in commands come before them."""
    found = {**_files(_SHIPPED / PROMPTS, ".md"), **_files(folder, ".md")}
    return {
        name: path
        for name, path in sorted(found.items())
        if name.lower() not in BY_SLASH and _COMMAND.fullmatch(name)
    }


def shadowed(folder: Path) -> list[str]:
    """Tell of each prompt that has the name of a built-in command, or that none can have."""
    why = {True: "is a command of specchat", False: "cannot be a command"}
    return [
        f"{path} is not used: /{one_line(name)} {why[name.lower() in BY_SLASH]}"
        for name, path in _files(folder, ".md").items()
        if name not in prompts(folder)
    ]


def described(path: Path) -> str:
    """What a prompt says of itself, else its first line, or what is wrong with it."""
    try:
        text = _text(path)
    except UsageError as error:
        return f"✕ {one_line(error.summary)}"
    head = _HEAD.match(text)
    told = _DESCRIPTION.search(head[1]) if head else None
    body = text[head.end() if head else 0 :].strip()
    return one_line(told[1].strip("\"' ") if told else body.partition("\n")[0].lstrip("# "))


def expanded(text: str, folder: Path) -> str:
    """What is sent for a text: that of the prompt if it names one, else the text as it is.

    $1 to $9 stand for the arguments, the last one of those for the rest of them; $ARGUMENTS for
    all; $$1 for $1 itself. Arguments that a prompt has no place for follow it.
    """
    named = _CALL.match(text)
    path = prompts(folder).get(named[1]) if named else None
    if named is None or path is None:
        return text
    prompt = _HEAD.sub("", _text(path), count=1).strip()
    if not prompt:
        raise UsageError(f"{path} is empty")
    arguments = text[named.end() :].strip()
    places = [number for dollar, number in _PLACE.findall(prompt) if not dollar]
    words = list(_WORD.finditer(arguments))

    def argument(place: re.Match[str]) -> str:
        if place[1]:
            return place[0][1:]
        number = place[2]
        if not number or int(number) > len(words):
            return "" if number else arguments
        word, is_last = words[int(number) - 1], number == max(places)
        has_rest = is_last and word != words[-1]
        return arguments[word.start() :] if has_rest else word[word.lastindex or 0]

    sent = _PLACE.sub(argument, prompt)
    return (sent if places else f"{sent}\n\n{arguments}").strip()
