"""The messages of a chat as a tree, and the path through it that is shown."""

from collections.abc import Iterator

from app.dialogue.turn import Turn, path_to


class Tree:
    """All versions of all messages. path: the turns shown, first question first; read only."""

    def __init__(self) -> None:
        self.roots: list[Turn] = []
        """Versions of the first question, oldest first."""
        self.root: Turn | None = None
        """The first question that is shown."""
        self.path: list[Turn] = []

    def __iter__(self) -> Iterator[Turn]:
        """All turns, each after its parent."""
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
        self._set_shown(turn)
        self.path.append(turn)
        return [turn]

    def __contains__(self, turn: Turn) -> bool:
        """Whether a turn was not removed, nor anything that leads to it."""
        return all(above in self.versions(above) for above in path_to(turn))

    def versions(self, turn: Turn) -> list[Turn]:
        """The turn and its siblings, oldest first."""
        return self.roots if turn.parent is None else turn.parent.children

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
                self._set_shown(above)
                changed.append(above)
            above = above.parent
        self.rebuild_path()
        return changed

    def remove(self, turn: Turn) -> None:
        """Remove a turn with all below it; the newest other version is shown."""
        versions = self.versions(turn)
        versions.remove(turn)
        if self.shown_below(turn.parent) is turn:
            newest = versions[-1] if versions else None
            if turn.parent is None:
                self.root = newest
            else:
                turn.parent.shown = newest
        self.rebuild_path()

    def shown_below(self, parent: Turn | None) -> Turn | None:
        """The child of a turn that is shown; of None: the first question that is shown."""
        return self.root if parent is None else parent.shown

    def rebuild_path(self) -> None:
        """Follow the turns shown from the first question on."""
        self.path = []
        turn = self.root
        while turn is not None:
            self.path.append(turn)
            turn = turn.shown

    def _set_shown(self, turn: Turn) -> None:
        if turn.parent is None:
            self.root = turn
        else:
            turn.parent.shown = turn
