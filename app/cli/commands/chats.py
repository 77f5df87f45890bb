"""`specchat chats`: saved conversations from the shell."""

import datetime
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from app import completion
from app.cli import options
from app.cli.command import Command, Group
from app.cli.output import Json, Output, write_result
from app.cli.terminal import stderr, stdout
from app.history import Chat, History
from app.history.export import as_json, as_markdown, read_backup, write_export
from app.history.store import has_chats, open_history, remove_chat
from app.learned.registered import REMOVED_CHAT, taught_by
from app.paths import Paths
from app.printable import printable
from app.wording import SEPARATOR, counted
from backends.base import UsageError

_MOST_OFFERED = 3

chats = typer.Typer(
    cls=Group,
    help="List, show, export, import and remove saved chats.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Number = Annotated[
    int, options.argument("NUMBER", "As `specchat chats list` shows it.", completion.chats)
]


@chats.command("list", cls=Command)
def list_chats(
    query: Annotated[str, typer.Argument(help="Only chats that contain these words.")] = "",
    json: Json = False,
    output: Output = None,
) -> None:
    """Print one line per chat, the latest first."""
    listed: list[Chat] = []
    if has_chats(Paths.of_this_user()):
        with _history() as history:
            listed = history.chats(query)
    facts = {"chats": [asdict(chat) for chat in listed]}
    write_result(facts, map(_line, listed), json, output)
    if not (listed or json):
        stderr.note("no chat contains these words" if query else "there are no chats yet")


@chats.command(cls=Command)
def show(number: Number, json: Json = False, output: Output = None) -> None:
    """Print a chat."""
    with _history() as history:
        chat, messages = _chat(history, number), history.path(number)
    text = printable(as_markdown(chat, messages))
    write_result(as_json(chat, messages), [text], json, output, stdout.write)


@chats.command(cls=Command)
def export(
    number: Number,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Ends in .md or .json.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    json: Json = False,
    output: Output = None,
) -> None:
    """Write a chat to a file."""
    with _history() as history:
        _chat(history, number)
        written = write_export(history, number, file, overwrite=force)
    facts = {"number": number, "file": str(written)}
    write_result(facts, [f"written to {written}"], json, output, stderr.note)


@chats.command("import", cls=Command)
def import_chat(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A chat exported as .json.")],
    copy: Annotated[
        bool, typer.Option("--copy", help="Add it a second time if it is here already.")
    ] = False,
    json: Json = False,
    output: Output = None,
) -> None:
    """Add a chat that was exported, with all its versions."""
    with _history(creates=True) as history:
        number, is_new = read_backup(history, file, copies=copy)
        chat = history.chat(number)
    what = "imported as" if is_new else "not imported (--copy does): it is here already as"
    facts = {"imported" if is_new else "present": asdict(chat)}
    write_result(facts, [f"{what} {number}: {_title(chat)}"], json, output, stderr.note)


@chats.command(cls=Command)
def remove(number: Number, json: Json = False, output: Output = None) -> None:
    """Remove a chat; the app can restore it for a day."""
    with _history() as history:
        chat = _chat(history, number)
        remove_chat(history, number, Paths.of_this_user())
    removed = f"removed {number}: {_title(chat)}"
    for name in taught_by(Paths.of_this_user(), chat.mark):
        stderr.note(f"--draft {name} learned from it: {REMOVED_CHAT}")
    write_result({"removed": asdict(chat)}, [removed], json, output, stderr.note)


@contextmanager
def _history(*, creates: bool = False) -> Generator[History, None, None]:
    paths = Paths.of_this_user()
    if not (creates or has_chats(paths)):
        raise UsageError("there are no chats yet")
    with closing(open_history(paths)) as history:
        try:
            yield history
        finally:
            if news := history.news():
                stderr.note(news)


def _chat(history: History, number: int) -> Chat:
    chats_by_number = {chat.number: chat for chat in history.chats(limit=1_000_000)}
    if number in chats_by_number:
        return chats_by_number[number]
    nearest = sorted(chats_by_number, key=lambda other: abs(other - number))[:_MOST_OFFERED]
    offers = ", ".join(f"{other} ({_title(chats_by_number[other])})" for other in nearest)
    raise UsageError(f"no chat {number}. {f'Nearest: {offers}' if offers else 'None is saved'}")


def _line(chat: Chat) -> str:
    day = datetime.datetime.fromtimestamp(chat.updated).astimezone().date()
    of = f"{SEPARATOR}{chat.versions} versions" if chat.versions > 1 else ""
    return f"{chat.number:5}  {day}  {counted(chat.messages, 'message'):>13}  {_title(chat)}{of}"


def _title(chat: Chat) -> str:
    return " ".join(chat.title.split()) or "untitled"
