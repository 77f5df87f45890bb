"""The path through a chat's tree of messages that is shown."""

from collections.abc import Sequence
from dataclasses import replace

from app.history.chat import Saved


def linked(messages: Sequence[Saved]) -> list[Saved]:
    """Messages of a chat in order, each of which follows an earlier one or none.

    In a damaged file the message that one followed may be missing: it then follows the last one.
    """
    known = {0}
    last = 0
    found: list[Saved] = []
    for message in messages:
        is_known = message.parent in known
        found.append(message if is_known else replace(message, parent=last))
        last = message.number
        known.add(last)
    return found


def shown_path(messages: Sequence[Saved], first: int) -> list[Saved]:
    """The messages shown, the first question first; first: the version of it that is shown."""
    following: dict[int, dict[int, Saved]] = {}
    for message in linked(messages):
        following.setdefault(message.parent, {})[message.number] = message
    path: list[Saved] = []
    parent, wanted = 0, first
    while versions := following.get(parent):
        shown = versions.get(wanted) or versions[max(versions)]
        path.append(shown)
        parent, wanted = shown.number, shown.shown
    return path
