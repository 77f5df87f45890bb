"""Builds the prompts of requests before their turn, between two steps of another answer."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from app.engine.asking.answer import Answer

if TYPE_CHECKING:
    from app.engine.session import Session

_SHARE = 0.02
"""Most of another answer's time that it may take, as counting tokens may."""


class Preparations:
    """Answers whose prompts are wanted early: any thread may `ask`, the engine's thread builds.

    A prompt that is too long, or a grammar that cannot be used, is so known at once, whatever is
    answered meanwhile.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._waiting: deque[tuple[Answer, Future[int]]] = deque()
        self._clock = clock
        self._next_at = float("-inf")
        """When an answer may be delayed by another prompt."""

    def ask(self, answer: Answer) -> Future[int]:
        """Request the prompt of an answer; the number of its tokens, or why it cannot be built."""
        future: Future[int] = Future()
        self._waiting.append((answer, future))
        return future

    def build_all(self, session: "Session") -> None:
        """Build all prompts that wait."""
        while self._waiting:
            self._build_next(session)

    def build_beside(self, session: "Session") -> None:
        """Build prompts beside an answer, as long as that takes little of its time."""
        while self._waiting and (began := self._clock()) >= self._next_at:
            self._build_next(session)
            ended = self._clock()
            self._next_at = ended + (ended - began) / _SHARE

    def fail_all(self, error: Exception) -> None:
        """Tell all that wait that no prompt can be built."""
        while self._waiting:
            _, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def _build_next(self, session: "Session") -> None:
        from app.engine.asking.asked_prompt import prompt_for  # loads what runs models

        answer, future = self._waiting.popleft()
        if not future.set_running_or_notify_cancel():
            return
        try:
            prompt = prompt_for(session, answer)
            session.check(prompt, answer.request.settings, answer.request.options)
            future.set_result(len(prompt.tokens))
        except Exception as error:
            future.set_exception(error)
