"""Files that a message names with @: found, completed, read, or why they cannot be added."""

import os
import re
import shlex
from collections.abc import Callable, Container
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

from app.chat.attachments import Attachment, AttachmentKind, Attachments
from app.documents.document import fault_of, page_picture, read, read_bytes
from app.documents.folders import exists, holds, is_file, is_folder, is_pattern
from backends.base import UsageError
from backends.base.images import MOST_IMAGE_BYTES, is_image
from backends.base.safe_files import NotTextError, TooLargeError, open_regular
from backends.chat.message import whole_characters

_NAMED = re.compile(r'@(?:"([^"\n]+)"|"?(\S{1,1000}))')
_BEGUN = re.compile(r'(?<![0-9A-Za-z_.%+-])@("[^"\n]*|[^\s@]*)$')
_UNCLOSED = re.compile(r'(?<!\S)@("[\w~./][^"\n]{0,60})')
_SCAN = "a scan;"
"""In what a PDF file without text is refused with."""

_MOST_PAGES = 8
"""Of a scan that is read as images: each may take a thousand tokens. A guess; not measured."""

_OF_ADDRESS = re.compile(r"[\w.%+-]", re.ASCII)
"""What stands before the @ of an e-mail address."""

_CUT = re.compile(r"[^\w./\\~+=&%$#^-]|[./](?!\w)|(?<=[0-9A-Za-z])[^\W\x00-\u0dff]")
"""Where a name may end without a space: at punctuation of any script, and where letters of a script
go on, from Thai to Chinese, that has no spaces between words."""

_PATTERN = re.compile(r"[\w./\\~+=&%$#^*?\[\]-]*(?:\w|/\*\*?)")
"""A name with wild characters, which ends in a letter, or in all that is in a folder."""

_KINDS: tuple[tuple[Callable[[Path], bool], str], ...] = (
    (Path.is_dir, "a folder"),
    (Path.is_fifo, "a pipe"),
    (Path.is_socket, "a socket"),
    (Path.is_char_device, "a device"),
    (Path.is_block_device, "a device"),
)


Read = tuple[Attachments, list[str]]
"""Files, and why others cannot be added, each in a few words."""


def names_in(text: str, known: Container[str] = ()) -> list[str]:
    """What a message names, in order: what exists, and what has a slash or a dot like a file.

    known: files that were read before, and may be gone.
    """
    names: dict[str, None] = {}
    end = 0
    while (at := text.find("@", end)) >= 0:
        name, end = _named_at(text, at, known)
        if name:
            names[name] = None
    return list(names)


def _named_at(text: str, at: int, known: Container[str] = ()) -> tuple[str, int]:
    """The name that follows an @, empty for none, and where it ends.

    Without quotes the longest file's that it may be, so that "(@a(1).md)" is a(1).md if there is
    one. An e-mail address is text, unless there is such a file. Where a quote is not closed, nobody
    can tell where the name ends: it is the rest of the line with the quote, which is no file's.
    """
    found = _NAMED.match(text, at)
    if found is None:
        return "", at + 1
    if quoted := found[1]:
        is_name = exists(quoted) or quoted in known or _is_path_like(quoted) or is_pattern(quoted)
        return quoted * is_name, found.end()
    run, start = found[2], found.start(2)
    ends = {len(run), *(cut.start() for cut in _CUT.finditer(run))} - {0}
    names = [run[:end] for end in sorted(ends, reverse=True)]
    name = next((name for name in names if is_file(name) or name in known), "")
    if not name and (pattern := _PATTERN.match(run)) and is_pattern(pattern[0]):
        return pattern[0], start + pattern.end()
    if not name and not _OF_ADDRESS.match(text[at - 1 : at]):
        name = next((name for name in names if exists(name)), "")
        name = name or next((name for name in reversed(names) if _is_path_like(name)), "")
    if not name and (unclosed := _UNCLOSED.match(text, at)):
        return unclosed[1].rstrip(), unclosed.end()
    return name, start + len(name)


def read_file(name: str, data: bytes | None = None) -> Attachment:
    """A file with its contents as they are now. data: these, if they came with the name.

    Raises:
        UsageError: it cannot be added; why in a few words.
    """
    path = Path(name)
    try:
        picture = picture_in(path.expanduser()) if data is None else data
        if picture and is_image(picture):
            return Attachment.of_image(whole_characters(name), picture)
        document = read(path.expanduser()) if data is None else read_bytes(data, path.name)
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(_why_not(name, error)) from error
    return Attachment(AttachmentKind.FILE, whole_characters(name), whole_characters(document.text))


def picture_in(path: Path) -> bytes:
    """The file of an image and, if it is too large, a little more than may be; empty for others."""
    with open_regular(path) as file:
        begun = file.read(16)
        return begun + file.read(MOST_IMAGE_BYTES) if is_image(begun) else b""


def read_files(text: str, known: Container[str] = ()) -> Read:
    """The files that a message names, without folders and patterns. known: as in names_in."""
    read: list[Attachment] = []
    faults: list[str] = []
    for name in names_in(text, known):
        if is_folder(name) and name not in known:
            continue
        try:
            read.append(read_file(name))
        except UsageError as error:
            pages = _pages(Path(name).expanduser()) if _SCAN in error.what else []
            if 0 < len(pages) <= _MOST_PAGES:
                read += [replace(one, name=f"{name}, page {n}") for n, one in enumerate(pages, 1)]
            elif pages:
                faults.append(f"{name} is a scan of over {_MOST_PAGES} pages")
            elif is_file(name) or name not in known:
                faults.append(error.what)
    return tuple(read), faults


def _pages(path: Path) -> list[Attachment]:
    """Pages of a scanned PDF file as images, and one more than may be sent if it has as many."""
    with suppress(OSError):
        return list(_pages_of(path.absolute(), path.stat().st_mtime_ns))
    return []


@lru_cache(4)
def _pages_of(path: Path, _changed: int) -> tuple[Attachment, ...]:
    pages: list[Attachment] = []
    with suppress(OSError, ValueError, UsageError):
        while len(pages) <= _MOST_PAGES:
            data = page_picture(path, len(pages) + 1)
            pages.append(Attachment.of_image(path.name, data))
    return tuple(pages)


def begin_reading(text: str, known: Container[str] = ()) -> "Future[Read]":
    """As read_files, in a thread of its own: a file of another program may take seconds."""
    future: Future[Read] = Future()

    def work() -> None:
        try:
            future.set_result(read_files(text, known))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, name="files", daemon=True).start()
    return future


def names_of_paths(pasted: str) -> str:
    """Names, such as "@/tmp/a.md ", for a text that is paths of files; empty for another text.

    Terminals paste what is dropped on them: quoted, with escaped spaces, or as file:// addresses.
    """
    whole = pasted.strip()
    try:
        paths = [whole.strip('"')] if os.name == "nt" or exists(whole) else shlex.split(whole)
    except ValueError:
        return ""
    paths = [path_of(path) for path in paths]
    if not paths or not all(os.path.isabs(path) and exists(path) for path in paths):
        return ""
    return "".join(f"@{quoted(path)} " for path in paths)


def path_of(address: str) -> str:
    """The path of a file by its file:// address; another text stays as it is."""
    if not address.startswith("file://"):
        return address
    path = unquote(urlsplit(address).path)
    on_drive = re.match("/[A-Za-z]:", path)  # of Windows
    return path[bool(on_drive) :]


def without_begun_name(text: str) -> str:
    begun = _BEGUN.search(text)
    is_begun = begun and not is_file(_named_at(text, begun.start())[0])
    return text[: begun.start()] if begun and is_begun else text


def file_names(before: str) -> list[str]:
    """Completions of the name at the end of a line; folders end in a slash."""
    begun = _BEGUN.search(before)
    if begun is None:
        return []
    typed = begun[1].strip('"')
    folder, _, start = typed.rpartition("/")
    head = f"{folder}/" if "/" in typed else ""
    try:
        entries = sorted(Path(head or ".").expanduser().iterdir())
    except (OSError, RuntimeError, ValueError):
        return []
    hidden = start.startswith(".")
    names = [
        f"{head}{entry.name}{'/' if entry.is_dir() else ''}"
        for entry in entries
        if entry.name.lower().startswith(start.lower()) and entry.name.startswith(".") == hidden
    ]
    return [] if names == [typed] else names


def quoted(name: str) -> str:
    """Quote a name with spaces; a folder's quote stays open for a file inside."""
    if " " not in name:
        return name
    return f'"{name}' if name.endswith("/") else f'"{name}"'


def _is_path_like(name: str) -> bool:
    return "/" in name or "." in name.strip(".")


def _why_not(name: str, error: Exception) -> str:
    if isinstance(error, (NotTextError, TooLargeError)):
        return f"{name} {fault_of(error)}"
    if not exists(name):
        is_unclosed = name.startswith('"')
        return f"@{name} has no closing quote" if is_unclosed else f"no file {name}"
    kind = next((f"is {kind}" for is_kind, kind in _KINDS if holds(name, is_kind)), "")
    return f"{name} {kind or 'cannot be read'}"
