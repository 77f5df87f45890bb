"""Files named with @ and folded pastes: where a message names them, and what the model reads."""

import re
from collections.abc import Sequence
from pathlib import Path

from app.chat.attachment import Attachment, AttachmentKind
from backends.base import UsageError
from backends.base.regular_file import TooLargeError, read_text
from backends.base.whole_characters import whole_characters

_MOST_BYTES = 1 << 20
_BEGUN = re.compile(r"(?<!\S)@(\"[^\"]*|\S*)$")
_NAMED = re.compile(r"(?<!\S)@(\"[^\"]+\"|\S+)")


def named_files(text: str) -> list[Path]:
    """Existing files that a message names, in order."""
    paths = (_file(name.strip('"')) for name in _NAMED.findall(text))
    return [path for path in dict.fromkeys(paths) if path is not None]


def missing_files(text: str) -> list[str]:
    """Names with a slash or a dot that are not files."""
    named = dict.fromkeys(name.strip('"') for name in _NAMED.findall(text))
    path_like = (name for name in named if "/" in name or "." in name.strip("."))
    return [name for name in path_like if _file(name) is None]


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


def read_files(text: str) -> tuple[Attachment, ...]:
    """The files that a message names, with their contents as they are now.

    Raises:
        UsageError: a file is not text, or too large.
    """
    names = dict.fromkeys(name.strip('"') for name in _NAMED.findall(text))
    files = ((name, path) for name in names if (path := _file(name)) is not None)
    return tuple(
        Attachment(AttachmentKind.FILE, whole_characters(name), whole_characters(_read(path)))
        for name, path in files
    )


def in_full(text: str, attachments: Sequence[Attachment]) -> str:
    """A message as the model reads it: pastes in place, then the files that it names."""
    files = [one for one in attachments if one.kind is AttachmentKind.FILE]
    return "\n\n".join([with_pastes(text, attachments), *map(block, files)])


def block(file: Attachment) -> str:
    """A file as it is added to a message."""
    return f"{Path(file.name).name}:\n```\n{file.text}\n```"


def with_pastes(text: str, attachments: Sequence[Attachment]) -> str:
    """A message with each paste in place of its placeholder; equal placeholders are taken in order.

    A paste whose placeholder was deleted is left out.
    """
    waiting: dict[str, list[str]] = {}
    for one in attachments:
        if one.kind is AttachmentKind.PASTE and one.name:
            waiting.setdefault(one.name, []).append(one.text)
    if not waiting:
        return text
    names = "|".join(map(re.escape, sorted(waiting, key=len, reverse=True)))

    def pasted(placeholder: re.Match[str]) -> str:
        texts = waiting[placeholder[0]]
        return texts.pop(0) if texts else placeholder[0]

    return re.sub(names, pasted, text)


def without_files(text: str) -> str:
    """A message of an earlier version as typed: files were then part of the text."""
    names = (name.strip('"') for name in _NAMED.findall(text))
    heads = (f"\n\n{Path(name).name}:\n```\n" for name in names)
    starts = [text.index(head) for head in heads if head in text]
    return text[: min(starts)] if starts else text


def _file(name: str) -> Path | None:
    try:
        path = Path(name).expanduser()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):  # not a valid file name
        return None


def _read(path: Path) -> str:
    try:
        return read_text(path, _MOST_BYTES)
    except TooLargeError as error:
        raise UsageError(f"{path} is too large", "a file may have 1 MB") from error
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise UsageError(f"cannot read {path}", why) from error
