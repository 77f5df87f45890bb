"""Exports a chat to a Markdown or JSON file."""

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.history.chat import Chat, HistoryError, Saved
from app.history.store import History
from backends.base import UsageError
from backends.base.atomic_file import write_whole

SCHEMA = 1


def as_markdown(chat: Chat, messages: Sequence[Saved]) -> str:
    """The chat as Markdown."""
    blocks = [
        f"# {chat.title or 'Chat'}",
        ", ".join(filter(None, [_day(chat.created), chat.model])),
    ]
    if chat.system:
        blocks.append(f"**System**\n\n{chat.system}")
    for message in messages:
        ending = f"\n\n*{message.ending}*" if message.ending else ""
        blocks.append(f"**{message.role.capitalize()}**\n\n{message.text}{ending}")
    return "\n\n".join(blocks) + "\n"


def as_json(chat: Chat, messages: Sequence[Saved]) -> dict[str, Any]:
    """The chat as a JSON object."""
    return {
        "schema": SCHEMA,
        "number": chat.number,
        "title": chat.title,
        "model": chat.model,
        "system": chat.system,
        "created": chat.created,
        "updated": chat.updated,
        "messages": [
            {
                "role": message.role,
                "text": message.text,
                "ending": message.ending,
                "created": message.created,
            }
            for message in messages
        ],
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
    chat, messages = history.chat(number), history.messages(number)
    if suffix == ".md":
        text = as_markdown(chat, messages)
    else:
        text = json.dumps(as_json(chat, messages), ensure_ascii=False, indent=1) + "\n"
    try:
        write_whole(path, text, is_private=False)
    except OSError as error:
        raise HistoryError(f"cannot write {path}", error.strerror or str(error)) from error
    return path.absolute()


def _day(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds).astimezone().date().isoformat()
