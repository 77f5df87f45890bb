"""`specchat chats`: saved conversations from the shell."""

import datetime
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from app.cli.terminal import stderr, stdout
from app.history import Chat, History
from app.history.export import as_json, as_markdown, write_export
from app.history.opening import open_history
from app.history.removal import remove_chat
from app.paths import Paths
from app.printable import printable
from backends.base import UsageError

chats = typer.Typer(
    help="List, show, export and remove saved chats.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="As `specchat chats list` shows it.")]
Json = Annotated[bool, typer.Option("--json", help="JSON in place of text.")]


@chats.command("list")
def list_chats(
    query: Annotated[str, typer.Argument(help="Only chats that hold these words.")] = "",
    json: Json = False,
) -> None:
    """One line for each chat, the latest first."""
    found: list[Chat] = []
    if Paths.of_this_user().history.exists():
        with _history() as history:
            found = history.chats(query)
    if json:
        stdout.write_json([asdict(chat) for chat in found])
        return
    for chat in found:
        day = datetime.datetime.fromtimestamp(chat.updated).astimezone().date()
        line = f"{chat.number:5}  {day}  {chat.messages:4} messages  {_title(chat)}"
        stdout.write_line(line)
    if not found:
        stderr.note("no chat holds these words" if query else "there are no chats yet")


@chats.command()
def show(number: Number, json: Json = False) -> None:
    """Print a chat."""
    with _history() as history:
        chat, messages = _chat(history, number), history.messages(number)
    if json:
        stdout.write_json(as_json(chat, messages))
    else:
        stdout.write(printable(as_markdown(chat, messages)))


@chats.command()
def export(
    number: Number,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Ends in .md or .json.")],
) -> None:
    """Write a chat to a file."""
    with _history() as history:
        _chat(history, number)
        stderr.note(f"written to {write_export(history, number, file)}")


@chats.command()
def remove(number: Number) -> None:
    """Remove a chat; the app can restore it for a day."""
    with _history() as history:
        title = _title(_chat(history, number))
        remove_chat(history, number, Paths.of_this_user())
    stderr.note(f"removed {number}: {title}")


@contextmanager
def _history() -> Generator[History, None, None]:
    paths = Paths.of_this_user()
    if not paths.history.exists():
        raise UsageError("there are no chats yet")
    with closing(open_history(paths)) as history:
        try:
            yield history
        finally:
            if news := history.news():
                stderr.note(news)


def _chat(history: History, number: int) -> Chat:
    known = {chat.number: chat for chat in history.chats(limit=1_000_000)}
    if number not in known:
        some = ", ".join(map(str, list(known)[:10])) or "none"
        raise UsageError(f"there is no chat {number}", f"known: {some}")
    return known[number]


def _title(chat: Chat) -> str:
    """A chat's title on one line."""
    return " ".join(chat.title.split()) or "untitled"
