"""Takes saved messages over into a chat's tree, which may hold some of them already."""

from collections.abc import Callable, Sequence

from app.dialogue.tree import Tree
from app.dialogue.turn import ASSISTANT, Turn
from app.history.chat import Saved
from app.history.path import linked
from app.history.writer import is_running


def merge(
    tree: Tree, messages: Sequence[Saved], first: int, is_own: Callable[[Turn], bool]
) -> list[Turn] | None:
    """Bring a tree up to date; turns keep their identity, and the path shown stays.

    Where the path shown had ended, it goes on as it was last shown by another window.

    Args:
        tree: all turns in it with a number were saved.
        messages: all messages of the chat as they are saved now, oldest first.
        first: the version of the first question that was shown last.
        is_own: whether a turn has changes that are not saved yet, or is written by this window.

    Returns:
        The turns that other windows withdrew although something follows them here, which are to be
        saved again; None if nothing has changed.
    """
    known = {turn.number: turn for turn in tree if turn.number is not None}
    turns: dict[int, Turn] = {}
    changed = False
    for message in linked(messages):
        turn, parent = known.pop(message.number, None), turns.get(message.parent)
        if turn is None:
            turn = _new(message, parent)
            tree.versions(turn).append(turn)
            tree.sort_versions(turn)
            changed = True
        elif turn.parent is not parent:
            tree.remove(turn)
            turn.parent = parent
            tree.versions(turn).append(turn)
            tree.sort_versions(turn)
            changed = True
        elif not is_own(turn):
            changed = _update(turn, message) or changed
        turns[message.number] = turn
    again = _without(tree, known, is_own)
    changed = _follow(tree, messages, turns, first) or bool(known) or changed
    tree.rebuild_path()
    return again if changed else None


def _new(message: Saved, parent: Turn | None) -> Turn:
    turn = Turn(message.role, message.text, attachments=message.attachments, parent=parent)
    turn.number = message.number
    _update(turn, message)
    return turn


def _update(turn: Turn, message: Saved) -> bool:
    """Take over what an answer has become; returns whether it has changed."""
    unfinished = message.role == ASSISTANT and not message.ending
    before = turn.text, turn.ending, turn.lossy, turn.is_growing
    turn.text, turn.ending, turn.lossy = message.text, message.ending, message.lossy
    turn.is_growing = unfinished and is_running(message.writer)
    return before != (turn.text, turn.ending, turn.lossy, turn.is_growing)


def _without(tree: Tree, gone: dict[int, Turn], is_own: Callable[[Turn], bool]) -> list[Turn]:
    """Remove turns that are no longer saved, except those that something here follows."""
    kept: list[Turn] = []
    for turn in [turn for turn in reversed(list(tree)) if turn.number in gone]:
        if turn.children or is_own(turn):
            turn.number = None
            kept.append(turn)
        else:
            tree.remove(turn)
    return kept[::-1]


def _follow(tree: Tree, messages: Sequence[Saved], turns: dict[int, Turn], first: int) -> bool:
    """Continue the path where it had ended; returns whether it goes on."""
    changed = False
    for message in messages:
        turn = turns[message.number]
        if turn.shown is None and turn.children:
            shown = turns.get(message.shown)
            is_child = shown is not None and shown.parent is turn
            turn.shown = shown if is_child else turn.children[-1]
            changed = True
    if tree.root is None and tree.roots:
        shown = turns.get(first)
        is_root = shown is not None and shown.parent is None
        tree.root = shown if is_root else tree.roots[-1]
        changed = True
    return changed
