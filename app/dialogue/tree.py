"""A chat's messages as a tree of versions, the path shown, and changes that can be undone."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from app.chat.attachments import Attachment
from app.chat.sources import Source, sources_of
from app.history.records import Saved, is_running, linked
from app.wording import CONTINUES

# What the user did, to be undone and redone.

Step = Callable[[], Awaitable[None] | None]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Change:
    """Something the user did. name: in the past tense, such as "edited a question"."""

    name: str
    undo: Step
    redo: Step


class Changes:
    """Changes in order; a new one forgets those that were undone."""

    def __init__(self) -> None:
        self._done: list[Change] = []
        self._undone: list[Change] = []

    def add(self, change: Change) -> None:
        self._done.append(change)
        self._undone.clear()

    def note(
        self, name: str, use: Callable[[Value], Awaitable[None] | None], before: Value, after: Value
    ) -> None:
        """Add the change of a value, which was just used in place of the one before."""
        self.add(Change(name, lambda: use(before), lambda: use(after)))

    async def undo(self) -> str:
        """Undo the last change; returns its name, empty if there is none."""
        return await _move(self._done, self._undone, lambda change: change.undo)

    async def redo(self) -> str:
        """Redo the change that was undone last; returns its name, empty if there is none."""
        return await _move(self._undone, self._done, lambda change: change.redo)


async def _move(
    source: list[Change], target: list[Change], step_of: Callable[[Change], Step]
) -> str:
    if not source:
        return ""
    change = source[-1]
    pending = step_of(change)()
    if pending is not None:
        await pending
    source.remove(change)  # only now: a step that failed can be tried again
    target.append(change)
    return change.name


class OwnChanges:
    """The changes made in one place, such as a screen: undo and redo there reach no others."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._done = self._undone = 0

    @property
    def has_any(self) -> bool:
        return self._done > 0

    def add(self, change: Change) -> None:
        self._changes.add(change)
        self.count()

    def count(self) -> None:
        """Count a change that was just made here and is remembered already."""
        self._done, self._undone = self._done + 1, 0

    async def undo(self) -> str:
        """Undo the last change made here; returns its name, empty if there is none."""
        if not self._done:
            return ""
        name = await self._changes.undo()
        self._done, self._undone = self._done - 1, self._undone + 1
        return name

    async def redo(self) -> str:
        """Redo the change that was undone last here; returns its name, empty if there is none."""
        if not self._undone:
            return ""
        name = await self._changes.redo()
        self._done, self._undone = self._done + 1, self._undone - 1
        return name


USER, ASSISTANT, TOOL = "user", "assistant", "tool"


@dataclass(slots=True, eq=False)
class Turn:
    """A question, an answer, or a call of a tool that an answer ends with.

    A call's text is its result, empty while it has none, and its attachment what is called. Its
    children are the versions of what follows it.

    number: its number in the history, None while it is not saved. shown: the child shown last.
    """

    role: str
    text: str
    """As it was typed: attached files and pastes are not part of it."""
    ending: str = ""
    """The line below an answer; empty while it grows, and for good if it was interrupted."""
    attachments: tuple[Attachment, ...] = ()
    tokens: tuple[int, ...] = ()
    """Tokens of an answer, as far as they are known: what is continued."""
    number: int | None = None
    parent: "Turn | None" = field(default=None, repr=False)
    children: "list[Turn]" = field(default_factory=lambda: [], repr=False)
    shown: "Turn | None" = field(default=None, repr=False)
    lossy: str = ""
    """Name of the lossy rule of an answer without an ending; empty if it is lossless."""
    model: str = ""
    """Name of the model that wrote an answer, if it is known."""
    is_growing: bool = False
    """Whether an app writes this answer now, this one or another."""

    @property
    def is_interrupted(self) -> bool:
        """Whether an answer ends where the app that wrote it was killed."""
        return self.role == ASSISTANT and not self.ending and not self.is_growing


def calls_after(turn: Turn) -> list[Turn]:
    """The calls that follow an answer, in order, as they are shown."""
    calls: list[Turn] = []
    following = turn.shown
    while following is not None and following.role == TOOL:
        calls.append(following)
        following = following.shown
    return calls


def called(call: Turn) -> tuple[str, str]:
    """The name of the tool that a turn calls, and its arguments; empty in a damaged file."""
    return next(((one.name, one.text) for one in call.attachments), ("", "{}"))


def may_continue(turn: Turn) -> bool:
    """Whether an answer has come to an end that was not its own."""
    return not turn.is_growing and (not turn.ending or turn.ending.endswith(CONTINUES))


def path_to(turn: Turn) -> list[Turn]:
    """What leads to a turn, first question first, and the turn."""
    path: list[Turn] = []
    above: Turn | None = turn
    while above is not None:
        path.append(above)
        above = above.parent
    return path[::-1]


def sources_for(answer: Turn) -> dict[int, Source]:
    """The passages that the model has read before an answer, by number."""
    return sources_of(one for turn in path_to(answer) for one in turn.attachments)


class Tree:
    """All versions of all messages. path: the turns shown, first question first; read only."""

    def __init__(self) -> None:
        self.roots: list[Turn] = []
        """Versions of the first question, oldest first."""
        self.root: Turn | None = None
        """The first question that is shown."""
        self.path: list[Turn] = []

    def __iter__(self) -> Iterator[Turn]:
        waiting = list(reversed(self.roots))
        while waiting:
            turn = waiting.pop()
            yield turn
            waiting.extend(reversed(turn.children))

    def add(self, turn: Turn) -> list[Turn]:
        """Add a turn below its parent and show it; returns what show does."""
        self.versions(turn).append(turn)
        if turn.parent is not (self.path[-1] if self.path else None):
            return self.show(turn)
        self.set_shown(turn.parent, turn)
        self.path.append(turn)
        return [turn]

    def __contains__(self, turn: Turn) -> bool:
        """Whether a turn was not removed, nor anything that leads to it."""
        return all(above in self.versions(above) for above in path_to(turn))

    def versions(self, turn: Turn) -> list[Turn]:
        """The turn and its siblings, oldest first."""
        return self.roots if turn.parent is None else turn.parent.children

    def insert(self, turn: Turn) -> None:
        self.versions(turn).append(turn)
        self.sort_versions(turn)

    def sort_versions(self, turn: Turn) -> None:
        """Put a turn in its place among its versions: by number, those without one last."""
        self.versions(turn).sort(key=lambda one: (one.number is None, one.number or 0))

    def show(self, turn: Turn) -> list[Turn]:
        """Show a turn, what leads to it and what was last shown below it.

        Returns:
            The turns that are now shown by their parents in place of others.
        """
        changed: list[Turn] = []
        above: Turn | None = turn
        while above is not None:
            if self.shown_below(above.parent) is not above:
                self.set_shown(above.parent, above)
                changed.append(above)
            above = above.parent
        self.rebuild_path()
        return changed

    def remove(self, turn: Turn) -> None:
        versions = self.versions(turn)
        versions.remove(turn)
        if self.shown_below(turn.parent) is turn:
            self.set_shown(turn.parent, versions[-1] if versions else None)
        self.rebuild_path()

    def shown_below(self, parent: Turn | None) -> Turn | None:
        """The child of a turn that is shown; of None: the first question that is shown."""
        return self.root if parent is None else parent.shown

    def rebuild_path(self) -> None:
        self.path, turn = [], self.root
        while turn is not None:
            self.path.append(turn)
            turn = turn.shown

    def set_shown(self, parent: Turn | None, child: Turn | None) -> None:
        if parent is None:
            self.root = child
        else:
            parent.shown = child


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
            tree.insert(turn)
            changed = True
        elif turn.parent is not parent:
            tree.remove(turn)
            turn.parent = parent
            tree.insert(turn)
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
    turn.model = message.model
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
    told = [*((turns[message.number], message.shown) for message in messages), (None, first)]
    for parent, number in told:
        children = tree.roots if parent is None else parent.children
        if children and tree.shown_below(parent) is None:
            shown = turns.get(number)
            tree.set_shown(parent, shown if shown in children else children[-1])
            changed = True
    return changed
