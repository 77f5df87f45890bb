"""Exports a chat to a Markdown or JSON file."""

import datetime
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.chat.attachments import in_full
from app.history.records import Chat, HistoryError, Saved
from app.history.store import History
from app.wording import without_continuation
from backends.base import UsageError
from backends.base.safe_files import write_whole

SCHEMA = 1

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def as_markdown(chat: Chat, messages: Sequence[Saved]) -> str:
    day = datetime.datetime.fromtimestamp(chat.created).astimezone().date()
    blocks = [
        f"# {chat.title or 'Chat'}",
        ", ".join(filter(None, [day.isoformat(), chat.model])),
    ]
    if chat.system:
        blocks.append(f"**System**\n\n{chat.system}")
    for message in messages:
        ending = without_continuation(message.ending) or message.lossy
        text = in_full(message.text, message.attachments)
        if message.role == "assistant":
            text = _with_closed_fence(text)
        line = f"\n\n*{ending}*" if ending else ""
        blocks.append(f"**{message.role.capitalize()}**\n\n{text}{line}")
    return "\n\n".join(blocks) + "\n"


def _with_closed_fence(text: str) -> str:
    """A text whose last code block, if nothing ends it, ends with it."""
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if not fence:
            fence = found[1] if found else ""
        elif found and found[1].startswith(fence) and not line.strip(found[1][0] + " "):
            fence = ""
    return f"{text}\n{fence}" if fence else text


def as_json(chat: Chat, messages: Sequence[Saved]) -> dict[str, Any]:
    versions = {"versions": chat.versions} if chat.versions > 1 else {}
    return {
        "schema": SCHEMA,
        "number": chat.number,
        "title": chat.title,
        "model": chat.model,
        "system": chat.system,
        "created": chat.created,
        "updated": chat.updated,
        **versions,
        "messages": [_message(message) for message in messages],
    }


def _message(message: Saved) -> dict[str, Any]:
    attachments = [{"kind": one.kind, "name": one.name} for one in message.attachments]
    return {
        "role": message.role,
        "text": in_full(message.text, message.attachments),
        "ending": message.ending or message.lossy,
        "created": message.created,
        **({"attachments": attachments} if attachments else {}),
    }


def write_export(history: History, number: int, path: Path, *, overwrite: bool = False) -> Path:
    """Write a chat as Markdown or JSON, by the file's ending; returns the full path.

    Raises:
        UsageError: the ending is another one, or the file exists and may not be overwritten.
        HistoryError: the chat cannot be read, or the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix not in (".md", ".json"):
        raise UsageError(f"cannot export to {path}", "it ends neither in .md nor in .json")
    if path.is_file() and not overwrite:
        remedy = "Choose another name, or use --force to replace it."
        raise UsageError(f"cannot export to {path}", "it exists", remedy)
    chat, messages = history.chat(number), history.path(number)
    if suffix == ".md":
        text = as_markdown(chat, messages)
    else:
        text = json.dumps(as_json(chat, messages), ensure_ascii=False, indent=1) + "\n"
    try:
        write_whole(path, text, is_private=False)
    except OSError as error:
        raise HistoryError(f"cannot write {path}", error.strerror or str(error)) from error
    return path.absolute()
