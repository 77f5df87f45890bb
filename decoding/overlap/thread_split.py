"""Division of a processor's threads between a target and a drafter while both run."""

from dataclasses import dataclass

from backends.base import ThreadedContext


@dataclass(slots=True)
class ThreadSplit:
    """Gives threads to both while they run at once, and all threads to each when alone.

    Only between passes of both. together: threads of the target and of the drafter. alone: the
    threads that each has otherwise.
    """

    target: ThreadedContext
    drafter: ThreadedContext
    together: tuple[int, int]
    alone: tuple[int, int]
    _is_split: bool = False

    def begin(self) -> None:
        """Divide the threads, before a round is drafted ahead."""
        self._is_split = True
        self._use(self.together)

    def end(self) -> None:
        """Give all threads to each again, after the round."""
        if self._is_split:
            self._is_split = False
            self._use(self.alone)

    def _use(self, threads: tuple[int, int]) -> None:
        self.target.use_threads(threads[0])
        self.drafter.use_threads(threads[1])
