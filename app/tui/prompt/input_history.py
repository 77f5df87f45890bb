"""Texts sent earlier, to be browsed with the arrow keys."""

from app.tui.prompt.prompt_text import PromptText

_EMPTY = PromptText()


class InputHistory:
    """Sent texts, oldest first, followed by what is being typed.

    A text changed while browsing is kept, and becomes an entry of its own when another is sent.
    """

    def __init__(self) -> None:
        self._past: list[PromptText] = []
        self._index = 0
        self._changed: dict[int, PromptText] = {}

    @property
    def texts(self) -> list[PromptText]:
        """All texts, as they were sent and as they were changed while browsing."""
        return [*self._past, *self._changed.values()]

    def unsent(self, current: PromptText) -> list[PromptText]:
        """What was typed and not sent, oldest first. current: what now stands in the prompt."""
        return [text for _, text in sorted({**self._changed, self._index: current}.items())]

    def remember(self, written: PromptText) -> list[PromptText]:
        """Add a text, and begin browsing behind it again; returns those changed while browsing."""
        changed = [text for _, text in sorted(self._changed.items())]
        for text in (*changed, written):
            self._append(text)
        self._changed.clear()
        self._index = len(self._past)
        return changed

    def move(self, step: int, current: PromptText) -> PromptText | None:
        """The text `step` entries on; None at the end. current: what now stands in the prompt."""
        index = min(max(self._index + step, 0), len(self._past))
        if index == self._index:
            return None
        if current != self._at(self._index):
            self._changed[self._index] = current
        self._index = index
        return self._at(index)

    def _append(self, written: PromptText) -> None:
        if written.text.strip() and self._past[-1:] != [written]:
            self._past.append(written)

    def _at(self, index: int) -> PromptText:
        if index in self._changed:
            return self._changed[index]
        return self._past[index] if index < len(self._past) else _EMPTY
