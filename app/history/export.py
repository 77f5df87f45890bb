"""Chats as files: Markdown to read, and JSON, which holds every version and can be read back."""

import datetime
import json
import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.chat.attachments import Attachment, from_json, in_full
from app.history.records import (
    Chat,
    HistoryError,
    Queued,
    Saved,
    as_number,
    as_seconds,
    as_text,
    linked,
    title_of,
)
from app.history.store import History
from app.settings.answering import ALLOWED
from app.settings.catalogue import TOOLS
from app.wording import without_continuation
from backends.base import UsageError
from backends.base.images import without_images
from backends.base.safe_files import explained, read_bounded, write_whole
from backends.chat.tools import as_object

SCHEMA = 1

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def as_markdown(chat: Chat, messages: Sequence[Saved]) -> str:
    day = datetime.datetime.fromtimestamp(chat.created).astimezone().date()
    blocks = [f"# {chat.title or 'Chat'}", ", ".join(filter(None, [day.isoformat(), chat.model]))]
    if chat.system:
        blocks.append(f"**System**\n\n{chat.system}")
    for message in messages:
        ending = without_continuation(message.ending) or message.lossy
        text = without_images(in_full(message.text, message.attachments))
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
    about = _told(chat, "number", "title", "model", "system", "created", "updated")
    versions = {"versions": chat.versions} if chat.versions > 1 else {}
    shown = [_message(message) for message in messages]
    return {"schema": SCHEMA, **about, **versions, "messages": shown}


def _told(row: Chat | Saved, *names: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in names}


def _message(message: Saved) -> dict[str, Any]:
    attachments = [{"kind": one.kind, "name": one.name} for one in message.attachments]
    return {
        "role": message.role,
        "text": without_images(in_full(message.text, message.attachments)),
        "ending": message.ending or message.lossy,
        "created": message.created,
        **({"attachments": attachments} if attachments else {}),
        **({"model": message.model} if message.model else {}),
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
    if suffix == ".md":
        text = as_markdown(history.chat(number), history.path(number))
    else:
        text = json.dumps(backup(history, number), ensure_ascii=False, indent=1) + "\n"
    with explained(f"cannot write {path}", HistoryError):
        write_whole(path, text, is_private=False)
    return path.absolute()


def backup(history: History, number: int) -> dict[str, Any]:
    """A chat as JSON with all that is known of it; its messages are numbered from 1 on."""
    chat, messages = history.chat(number), linked(history.messages(number))
    facts = history.facts(number)
    places = {0: 0} | {message.number: place for place, message in enumerate(messages, 1)}
    return {
        **as_json(chat, history.path(number)),
        "name": facts["title"],
        "settings": as_object(facts["settings"]) or {},
        "folder": facts["folder"],
        "shown": places.get(history.first_shown(number), 0),
        "tree": [
            {
                "number": places[message.number],
                "parent": places[message.parent],
                "shown": places.get(message.shown, 0),
                **_told(message, "role", "text", "ending", "lossy", "model", "created"),
                "attachments": [one.stored for one in message.attachments],
                "tokens": list(history.tokens(message.number)),
            }
            for message in messages
        ],
        "queue": [
            {"text": one.text, "attachments": [each.stored for each in one.attachments]}
            for one in history.queue(number)
        ],
    }


_MOST_BYTES = 1 << 30
_HERE = "SELECT number FROM chats WHERE created = ? AND removed IS NULL ORDER BY number"
_MALFORMED = (
    *(LookupError, TypeError, AttributeError, ValueError, ArithmeticError),
    RecursionError,
)


def read_backup(history: History, path: Path, *, copies: bool = False) -> tuple[int, bool]:
    """Add a chat that was exported as JSON; returns its number, and whether it was added.

    One that began at the same moment is the same chat: unless copies, it is left as it is. A file
    of earlier versions holds the messages that were shown, with files and pastes in them.

    Raises:
        UsageError: the file cannot be read, or is none of these.
        HistoryError: the chat cannot be saved.
    """
    with explained(f"cannot read {path}"):
        text = read_bounded(path, _MOST_BYTES)
    try:
        found = json.loads(text)
        rows = found.get("tree") or [
            row | {"number": place, "parent": place - 1, "shown": place + 1}
            for place, row in enumerate(found["messages"], 1)
        ]
        times = as_seconds(found["created"]), as_seconds(found["updated"])
        here = history.rows(_HERE, times[:1])
        if here and not copies:
            return here[0][0], False
        title = found["title"]
        name = found["name"] if "name" in found else title * (title != title_of(rows[0]["text"]))
        number = history.add_whole(
            {name: as_text(found[name]) for name in ("model", "system")}
            | {"title": as_text(name), "settings": _harmless(found.get("settings", {}))}
            | {"folder": as_text(found.get("folder"))},
            times,
            [_saved(row) for row in rows],
            as_number(found.get("shown", 1)),
            {row["number"]: array("I", row.get("tokens", ())) for row in rows},
            [Queued(as_text(one["text"]), _attached(one)) for one in found.get("queue", ())],
        )
        return number, True
    except _MALFORMED as error:
        why = "it is no chat that specchat exported as JSON"
        raise UsageError(f"cannot import {path}", why) from error


def _harmless(settings: dict[str, Any]) -> str:
    """Settings without those that let a model call tools: who wrote the file may be a stranger."""
    kept = {name: value for name, value in settings.items() if name not in (TOOLS, ALLOWED)}
    return json.dumps(kept)


def _saved(row: dict[str, Any]) -> Saved:
    if row["role"] not in ("user", "assistant", "tool"):
        raise ValueError(row["role"])
    names = ("number", "role", "text", "ending", "created", "parent", "shown")
    known = [row[name] for name in names]
    return Saved.of([*known, row.get("lossy"), "", row.get("model")], _attached(row))


def _attached(row: dict[str, Any]) -> tuple[Attachment, ...]:
    return from_json(json.dumps(row.get("attachments", ())))
