"""A bounded number of places for what takes memory or time beside the queue."""

from collections.abc import Generator
from contextlib import contextmanager

from app.serve.refusal import RefusalKind, RefusedError


class Places:
    """Places of which only so many are taken at once; used on the server's event loop alone.

    what: what a place is for, as it is told to whom finds none.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self.taken = 0

    @contextmanager
    def take(self) -> Generator[None, None, None]:
        """Hold a place.

        Raises:
            RefusedError: all are taken.
        """
        if self.taken >= self._most:
            what = f"{self.taken} {self._what} already; try again later"
            raise RefusedError(RefusalKind.BUSY, what)
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
