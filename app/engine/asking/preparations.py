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

    def build(self, wanted: Future[int], session: "Session") -> None:
        """Build one prompt, unless that was done beside an answer; those asked later wait."""
        if (answer := self._taken(wanted)) is not None:
            _build(answer, wanted, session)

    def build_beside(self, session: "Session") -> None:
        """Build prompts beside an answer, as long as that takes little of its time.

        A grammar is not looked at while that would read the whole vocabulary first: up to a second,
        in which the answer would stand still. Its own turn tells whether it can be used.
        """
        while self._waiting and (began := self._clock()) >= self._next_at:
            answer, future = self._waiting.popleft()
            _build(answer, future, session, is_quick=True)
            ended = self._clock()
            self._next_at = ended + (ended - began) / _SHARE

    def fail(self, wanted: Future[int], error: Exception) -> None:
        """Tell that a prompt cannot be built."""
        if self._taken(wanted) is not None and wanted.set_running_or_notify_cancel():
            wanted.set_exception(error)

    def _taken(self, wanted: Future[int]) -> Answer | None:
        """The answer whose prompt is wanted, which waits no longer; None if it did not."""
        for place, (answer, future) in enumerate(self._waiting):
            if future is wanted:
                del self._waiting[place]
                return answer
        return None


def _build(
    answer: Answer, future: Future[int], session: "Session", *, is_quick: bool = False
) -> None:
    from app.engine.asking.asked_prompt import prompt_for  # loads what runs models

    if not future.set_running_or_notify_cancel():
        return
    request = answer.request
    try:
        prompt = prompt_for(session, answer)
        if not is_quick or request.options.grammar is None or session.has_grammar_vocabulary:
            session.check(prompt, request.settings, request.options)
        future.set_result(len(prompt.tokens))
    except Exception as error:
        future.set_exception(error)
