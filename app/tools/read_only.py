"""Tools of our own: they list, read and search attached folders, change nothing, and go nowhere.

What they are asked for was written by a model, perhaps on behalf of a file: a path that leads out
of the folders, by dots or links, does not exist for them, and neither does a hidden one.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from app.documents.document import read
from app.documents.folders import is_pattern, listed, root_of
from backends.base import SpecchatError, ToolError
from backends.chat.message import Tool, whole_characters

MOST_CHARACTERS = 8_000
"""Of one result: 2,000 tokens, half of the usual context."""

_MOST_LINES, _MOST_FOUND = 200, 50
_MOST_LINE = 300
_SECONDS = 10.0
"""Longest search."""

TOOLS = (
    Tool(
        "list_files",
        "List the files and folders in a folder of the attached files.",
        '{"type": "object", "properties": {"folder": {"type": "string", "description": '
        '"Its path; empty for all that is attached."}}}',
    ),
    Tool(
        "read_lines",
        f"Read lines of an attached file, at most {_MOST_LINES} at once.",
        '{"type": "object", "properties": {"path": {"type": "string"}, '
        '"first": {"type": "integer", "description": "The first line, from 1."}, '
        '"last": {"type": "integer", "description": "The last line."}}, "required": ["path"]}',
    ),
    Tool(
        "search",
        "Search the attached files for lines that hold these words.",
        '{"type": "object", "properties": {"words": {"type": "string"}, '
        '"folder": {"type": "string", "description": "Where; empty for all."}}, '
        '"required": ["words"]}',
    ),
)


def run(name: str, arguments: Mapping[str, object], roots: Sequence[Path]) -> str:
    """The result of a call, of at most MOST_CHARACTERS.

    Raises:
        ToolError: it has none, with why.
    """
    folders = _Folders(roots)
    if name == "list_files":
        return folders.listed(_text(arguments, "folder"))
    if name == "search":
        return folders.found(_text(arguments, "words"), _text(arguments, "folder"))
    if name == "read_lines":
        first = _number(arguments, "first", 1)
        last = _number(arguments, "last", first + _MOST_LINES - 1)
        return folders.lines(_text(arguments, "path"), first, last)
    raise ToolError(f"there is no tool {name}")


def _text(arguments: Mapping[str, object], name: str) -> str:
    value = arguments.get(name, "")
    if not isinstance(value, str):
        raise ToolError(f"{name} must be text")
    return value


def _number(arguments: Mapping[str, object], name: str, default: int) -> int:
    value = arguments.get(name, default)
    try:
        return int(value) if isinstance(value, int | float | str) else default
    except (ValueError, OverflowError) as error:
        raise ToolError(f"{name} must be a whole number") from error


class _Folders:
    """Attached folders and patterns; a file is named by its path from its folder's name on."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = [root_of(str(root)).resolve() for root in roots]
        patterns = [str(root) for root in roots if is_pattern(str(root))]
        self._listed = {one.path.resolve() for name in patterns for one in listed(name).entries}
        """The files of patterns, beside which others of their folders are not attached."""
        self._whole = [root.resolve() for root in roots if str(root) not in patterns]
        if not self._roots:
            raise ToolError("no folder is attached")

    def listed(self, folder: str) -> str:
        if not folder.strip("./"):
            return "\n".join(f"{root.name}/" for root in self._roots)
        path = self._within(folder)
        try:
            entries = sorted(path.iterdir())
        except OSError as error:
            raise ToolError(f"{folder} is not a folder that can be read") from error
        shown = [one for one in entries if self.holds(one)]
        lines = [f"{one.name}/" if one.is_dir() else _with_size(one) for one in shown]
        return _cut(lines, _MOST_LINES, "entries") or "it is empty"

    def lines(self, name: str, first: int, last: int) -> str:
        path = self._within(name)
        lines = _contents(path).splitlines()
        first = max(1, first)
        if first > max(1, len(lines)):
            raise ToolError(f"{name} has {len(lines):,} lines")
        last = max(first, min(last, first + _MOST_LINES - 1, len(lines)))
        head = f"{self._name(path)}, lines {first} to {last} of {len(lines)}:"
        return _cut([head, *lines[first - 1 : last]], last - first + 2, "lines")

    def found(self, words: str, folder: str) -> str:
        """Lines that hold most of the words, those that hold all first."""
        wanted = list(dict.fromkeys(re.findall(r"\w+", words.casefold())))
        if not wanted:
            raise ToolError("words are missing")
        starts = [self._within(folder)] if folder.strip("./") else self._roots
        ends = time.monotonic() + _SECONDS
        found: dict[int, list[str]] = {}
        for path in filter(self.holds, _files(starts, lambda: time.monotonic() < ends)):
            with suppress(ToolError):
                for number, line in enumerate(_contents(path).splitlines(), 1):
                    if held := sum(word in line.casefold() for word in wanted):
                        place = f"{self._name(path)}:{number}: {line.strip()[:_MOST_LINE]}"
                        found.setdefault(held, []).append(place)
        lines = found[max(found)] if found else ["nothing was found"]
        more = "" if time.monotonic() < ends else "\n(not all files were searched)"
        return _cut(lines, _MOST_FOUND, "lines") + more

    def _within(self, name: str) -> Path:
        """The file or folder of a name.

        Raises:
            ToolError: there is none in the attached folders.
        """
        for root in self._roots:
            for base in (root.parent, root):
                path = base / name
                if self.holds(path):
                    return path.resolve()
        raise ToolError(f"the attached folders have no {whole_characters(name[:_MOST_LINE])}")

    def holds(self, path: Path) -> bool:
        """Whether a path leads to what is there in a folder, and is not hidden."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):  # RuntimeError: a link to itself
            return False
        inner = (real.relative_to(root) for root in self._whole if real.is_relative_to(root))
        if any(not any(part.startswith(".") for part in one.parts) for one in inner):
            return True
        return any(file.is_relative_to(real) for file in self._listed) and not any(
            root.is_relative_to(real) and root != real for root in self._roots
        )

    def _name(self, path: Path) -> str:
        root = next(root for root in self._roots if path.is_relative_to(root))
        return path.relative_to(root.parent).as_posix()


def _files(starts: Sequence[Path], is_wanted: Callable[[], bool]) -> Iterator[Path]:
    """Files of folders, without those that git ignores and links."""
    for start in starts:
        found = [one.path for one in listed(str(start), is_wanted).entries]
        for path in found if start.is_dir() else [start]:
            if not is_wanted():
                return
            yield path


def _contents(path: Path) -> str:
    try:
        return read(path).text
    except (OSError, ValueError, SpecchatError) as error:
        raise ToolError(f"{path.name} cannot be read") from error


def _with_size(path: Path) -> str:
    try:
        return f"{path.name}  {path.stat().st_size:,} bytes"
    except OSError:
        return path.name


def _cut(lines: Sequence[str], most: int, what: str) -> str:
    """Lines as far as there is room, and how many are left out."""
    kept: list[str] = []
    size = 0
    for line in lines[:most]:
        size += len(line) + 1
        if size > MOST_CHARACTERS and kept:
            break
        kept.append(line[:MOST_CHARACTERS])
    left = len(lines) - len(kept)
    more = [f"({left:,} more {what})"] if left else []
    return whole_characters("\n".join([*kept, *more]))
