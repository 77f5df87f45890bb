"""Copies of a context's running state to go back to, by the number of tokens that it has read."""

from typing import Generic, Protocol, TypeVar

MOST = 8
"""Most lasting ones: the ends of the last few turns. A guess; not measured."""


class Copy(Protocol):
    @property
    def nbytes(self) -> int: ...


State = TypeVar("State", bound=Copy)


class Checkpoints(Generic[State]):
    """The shortest go first. Keys and values need no copy: those of the first tokens stay."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._lasting: dict[int, State] = {}
        self._brief: dict[int, State] = {}

    def __getitem__(self, length: int) -> State:
        return self._lasting[length] if length in self._lasting else self._brief[length]

    def has(self, length: int, *, is_brief: bool) -> bool:
        """Whether a copy after length tokens is held for as long already."""
        return length in self._lasting or (is_brief and length in self._brief)

    def latest(self, length: int) -> int:
        """The longest checkpoint of at most length tokens; 0 if there is none."""
        return max((held for held in (*self._lasting, *self._brief) if held <= length), default=0)

    def unused(self) -> State | None:
        """Take out the brief one, in whose place the next one is held."""
        return self._brief.popitem()[1] if self._brief else None

    def hold(self, length: int, state: State, *, is_brief: bool) -> None:
        """Hold the state after length tokens, if it fits the bytes allowed."""
        if state.nbytes > self.most_bytes:
            return
        if is_brief:
            self._brief = {length: state}
            return
        self._lasting[length] = state
        lasting = self._lasting
        while len(lasting) > MOST or sum(one.nbytes for one in lasting.values()) > self.most_bytes:
            del lasting[min(lasting)]

    def forget_after(self, length: int) -> None:
        """Drop the states that have read more than length tokens."""
        for states in (self._lasting, self._brief):
            for held in [held for held in states if held > length]:
                del states[held]
