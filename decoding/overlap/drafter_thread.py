"""A thread of its own for the passes of a drafter."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress


class DrafterThread:
    """Runs passes on one thread, which is kept from round to round: engines have threads for each.

    Engines release Python's lock while they compute, so that passes run beside the target's. A
    round is finite: where nobody stops it, as after an error, it ends by itself, so that the
    program can end.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="drafter")
        self._round: Future[None] | None = None
        self._is_stopped = False

    def start(self, passes: Iterator[object]) -> None:
        assert self._round is None, "the round before was not stopped"
        self._is_stopped = False
        self._round = self._executor.submit(self._run, passes)

    def _run(self, passes: Iterator[object]) -> None:
        while not self._is_stopped:
            try:
                next(passes)
            except StopIteration:
                return

    def stop(self) -> None:
        self._is_stopped = True
        if self._round is None:
            return
        try:
            self._round.result()
        finally:
            if self._round.done():  # else this thread was interrupted, and the round goes on
                self._round = None

    def close(self) -> None:
        with suppress(Exception):  # a faulty drafter is closed like any other
            self.stop()
        self._executor.shutdown()
