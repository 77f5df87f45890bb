"""Running states of earlier lengths, to which a context can come back."""

from backends.mlx.caches.held_states import HeldStates

MOST = 8
"""Most lasting checkpoints: the ends of the last few turns. A guess; not measured."""


class Checkpoints:
    """Running states by the number of tokens they have read; the shortest go first.

    Keys and values need no copy: those of the first tokens stay as they are.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lasting: dict[int, HeldStates] = {}
        self._brief: dict[int, HeldStates] = {}

    def latest(self, length: int) -> int:
        """The longest checkpoint of at most length tokens; 0 if there is none."""
        return max((held for held in (*self._lasting, *self._brief) if held <= length), default=0)

    def hold(self, length: int, states: HeldStates, *, is_brief: bool) -> None:
        """Hold the states after length tokens, if they fit the bytes allowed."""
        if length in self._lasting or states.nbytes > self._most_bytes:
            return
        if is_brief:
            self._brief = {length: states}
            return
        self._lasting[length] = states
        while len(self._lasting) > MOST or self.nbytes > self._most_bytes:
            del self._lasting[min(self._lasting)]

    @property
    def nbytes(self) -> int:
        """Size of the lasting ones."""
        return sum(states.nbytes for states in self._lasting.values())

    def put_back(self, length: int) -> None:
        """Give the caches the states after length tokens, for which there is a checkpoint."""
        states = self._lasting.get(length) or self._brief[length]
        states.put_back()

    def forget_after(self, length: int) -> None:
        """Drop the states that have read more than length tokens."""
        for states in (self._lasting, self._brief):
            for held in [held for held in states if held > length]:
                del states[held]
