"""What the user did, to be undone and redone."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Step = Callable[[], Awaitable[None] | None]


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
