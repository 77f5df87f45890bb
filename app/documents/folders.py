"""Files of a folder or of a pattern such as src/**/*.py: those that a person would mean."""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backends.base.safe_files import open_regular, read_bounded

MOST_FILES = 5_000
"""Files of a folder that are read; the rest is told to be left out."""

_MOST_ENTRIES = 200_000
"""Names that are looked at, so that a whole disk does not hold anybody up."""

_MOST_RULES = 1 << 20
"""Bytes of a .gitignore file."""

_SNIFFED = 1024
_READABLE = (b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"\xff\xfe", b"\xfe\xff")
"""How files begin that are read although they have NUL bytes: documents, and UTF-16."""

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file. name: as it is shown, the folder's name first. changed: its time in nanoseconds."""

    name: str
    path: Path
    size: int
    changed: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Files in the order of their names, and why others are left out, each in a few words."""

    entries: tuple[Entry, ...] = ()
    faults: tuple[str, ...] = ()


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern of files below a folder that exists."""
    folder, _ = _parts(name)
    return "*" in name and holds(str(folder), Path.is_dir)


def is_folder(name: str) -> bool:
    """Whether a name is a folder or a pattern of files in one."""
    return is_pattern(name) or (bool(name.strip(".")) and holds(name, Path.is_dir))


def exists(name: str) -> bool:
    return bool(name.strip(".")) and holds(name, Path.exists)


def is_file(name: str) -> bool:
    return holds(name, Path.is_file)


def holds(name: str, what: Callable[[Path], bool]) -> bool:
    """Whether something is true of the path of a name, which may be none."""
    try:
        return what(Path(name).expanduser())
    except (OSError, RuntimeError, ValueError):  # not a valid file name
        return False


def _parts(name: str) -> tuple[Path, str]:
    """The folder of a pattern, and what of it follows; all of a name without wild characters."""
    wild = _WILD.search(name)
    if wild is None:
        return Path(name), ""
    head, _, _ = name[: wild.start()].rpartition("/")
    return Path(head or ("/" if name.startswith("/") else ".")), name[len(head) :].lstrip("/")


def root_of(name: str) -> Path:
    """The folder that a name or a pattern is about."""
    return _parts(name)[0].expanduser()


def listed(name: str, is_wanted: Callable[[], bool] = lambda: True) -> Listing:
    """The file of that name, or those of a folder or pattern, without links.

    Hidden, ignored and binary ones of a folder are left out.

    What .gitignore files say holds, here as in git; but a folder that is ignored and named is read.
    is_wanted: asked now and then; False ends it early.
    """
    from pathspec import GitIgnoreSpec

    given, pattern = _parts(name)
    if not pattern and given.expanduser().is_file():
        state = given.expanduser().stat()
        path = Path(os.path.abspath(given.expanduser()))
        return Listing((Entry(name, path, state.st_size, state.st_mtime_ns),))
    shown = (given.name if given.is_absolute() else str(given)).replace(os.sep, "/")
    wanted = GitIgnoreSpec.from_lines([f"/{pattern}"]) if pattern else None
    root = Path(os.path.abspath(given.expanduser()))
    walk = _Walk(root, is_wanted)
    entries: list[Entry] = []
    prefix = "" if shown == "." else f"{shown.rstrip('/')}/"
    for inner, found in walk.files():
        if wanted is None or wanted.match_file(inner):
            if len(entries) == MOST_FILES:
                walk.faults.append(f"{name} has more than {MOST_FILES:,} files")
                break
            if (entry := walk.entry(f"{prefix}{inner}", found)) is not None:
                entries.append(entry)
    return Listing(tuple(entries), tuple(walk.faults))


class _Walk:
    """Goes through a folder in the order of names; what cannot be read becomes a fault."""

    def __init__(self, root: Path, is_wanted: Callable[[], bool]) -> None:
        self.faults: list[str] = []
        self._root, self._is_wanted, self._seen = root, is_wanted, 0
        self._rules = _rules_above(root)

    def files(self) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
        """Each file with its path below the root."""
        yield from self._below(self._root, "", self._rules)

    def _below(
        self, folder: Path, inner: str, rules: "list[tuple[str, _Rules]]"
    ) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda one: one.name)
        except OSError as error:
            self.faults.append(f"{inner or folder} cannot be read: {error.strerror or error}")
            return
        if any(one.name == _RULES for one in entries):
            rules = [*rules, (_inside(folder), _read_rules(folder))]
        for entry in entries:
            self._seen += 1
            if not self._is_wanted() or self._seen > _MOST_ENTRIES:
                return
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if _is_ignored(entry.path, is_folder, rules):
                continue
            if is_folder:
                yield from self._below(Path(entry.path), f"{inner}{entry.name}/", rules)
            elif entry.is_file(follow_symlinks=False):
                yield f"{inner}{entry.name}", entry

    def entry(self, name: str, found: "os.DirEntry[str]") -> Entry | None:
        """A file as it is now; None for one that is empty, binary or cannot be read."""
        path = Path(found.path)
        try:
            status = found.stat(follow_symlinks=False)
            with open_regular(path) as file:
                start = file.read(_SNIFFED)
        except OSError as error:
            self.faults.append(f"{name} cannot be read: {error.strerror or error}")
            return None
        if not start or (b"\0" in start and not start.startswith(_READABLE)):
            return None
        return Entry(name, path, status.st_size, status.st_mtime_ns)


_RULES = ".gitignore"
_BROAD = (
    (re.compile(r"^(!?)/?\*\*(?=/?[ \t]*$)", re.MULTILINE), r"\1?*"),
    (re.compile(r"^(!?/?)\*(?=/?[ \t]*$)", re.MULTILINE), r"\1?*"),
    (re.compile(r"/\*\*(?=[ \t]*$)", re.MULTILINE), "/**/*"),
)
"""Patterns of all that there is: pathspec takes them for more than git does."""

_Rules = list[tuple[bool, re.Pattern[str]]]
"""Whether a pattern ignores or takes back, and what it is of; the last one of a file first."""


def _read_rules(folder: Path) -> _Rules:
    """The rules of a folder's own file.

    A pattern of a folder is not one of what is in it, which is not looked at if it is ignored: so
    pathspec's expressions are matched in full.
    """
    from pathspec import GitIgnoreSpec

    try:
        text = read_bounded(folder / _RULES, _MOST_RULES).decode(errors="replace")
        for broad, exact in _BROAD:
            text = broad.sub(exact, text)
        patterns = GitIgnoreSpec.from_lines(text.splitlines()).patterns
    except (OSError, ValueError):
        return []
    rules: _Rules = []
    for one in reversed(patterns):
        regex: re.Pattern[str] | None = getattr(one, "regex", None)
        if one.include is not None and regex is not None:
            rules.append((one.include, regex))
    return rules


def _rules_above(root: Path) -> list[tuple[str, _Rules]]:
    """Rules of the folders that a folder is in, up to its repository; none if they ignore it."""
    above = [root, *root.parents]
    top = next((place for place, one in enumerate(above) if (one / ".git").exists()), 0)
    rules = [(_inside(folder), _read_rules(folder)) for folder in reversed(above[1 : top + 1])]
    is_named = any(_is_ignored(str(one), True, rules) for one in above[:top])
    return [] if is_named else rules


def _inside(folder: Path) -> str:
    """How the paths of what is in a folder begin."""
    return os.path.join(folder, "")


def _is_ignored(path: str, is_folder: bool, rules: list[tuple[str, _Rules]]) -> bool:
    """Whether rules ignore a path: the last that fits it, of the innermost folder with one."""
    for folder, own in reversed(rules):
        if path.startswith(folder):
            inner = path[len(folder) :].replace(os.sep, "/") + "/" * is_folder
            for ignores, regex in own:
                if regex.fullmatch(inner):
                    return ignores
    return False
