"""Counts tokens and builds prompts on the engine's thread, between two steps of an answer."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from app.engine.answer import Answer
from backends.base import UsageError

if TYPE_CHECKING:
    from app.engine.answerer import Answerer
    from backends.chat.chat_template import Prompt

CountTokens = Callable[[str], Future[int]]
"""Counts the tokens of a text in the background."""

_SHARE = 0.02
"""Most of an answer's time that it may take."""


class PromptBuilder:
    """Texts to count and prompts to build: any thread may ask, the engine's thread does it.

    A prompt that is too long, or a grammar that cannot be used, is so known at once, whatever is
    answered meanwhile.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._waiting: deque[tuple[Answer | str, Future[int]]] = deque()
        self._built: WeakKeyDictionary[Answer, Prompt] = WeakKeyDictionary()
        self._clock = clock
        self._next_at = float("-inf")
        """When an answer may be delayed again."""

    def ask(self, wanted: Answer | str) -> Future[int]:
        """Request the number of tokens of a text, or of the prompt of an answer.

        The future has an error if the prompt cannot be built.
        """
        future: Future[int] = Future()
        self._waiting.append((wanted, future))
        return future

    def prompt(self, answer: Answer, session: "Answerer") -> "Prompt":
        """The prompt of an answer, which is built once."""
        prompt = self._built.get(answer)
        if prompt is None:
            prompt, answer.dropped = session.prompt(answer.request)
            answer.form, answer.note = prompt.form, prompt.note
            self._built[answer] = prompt
        return prompt

    def take(self, answer: Answer, session: "Answerer") -> "Prompt":
        """The prompt of an answer whose turn has come, which is then no longer kept."""
        prompt = self.prompt(answer, session)
        del self._built[answer]
        return prompt

    def forget(self) -> None:
        """Forget what was built, as another model takes over."""
        self._built.clear()

    def work(self, future: Future[int], session: "Answerer") -> None:
        """Build one prompt, unless that was done, and count all texts; later prompts wait."""
        for item in list(self._waiting):
            if item[1] is future or isinstance(item[0], str):
                self._waiting.remove(item)
                self._do(*item, session)

    def work_beside(self, session: "Answerer") -> None:
        """Do what waits beside an answer, as long as that takes little of its time.

        A grammar is not looked at while that would read the whole vocabulary first: up to a second,
        in which the answer would stand still. Its own turn tells whether it can be used.
        """
        while self._waiting and (began := self._clock()) >= self._next_at:
            self._do(*self._waiting.popleft(), session, is_quick=True)
            ended = self._clock()
            self._next_at = ended + (ended - began) / _SHARE

    def fail(self, future: Future[int], error: Exception) -> None:
        """Tell that a prompt cannot be built; a text is counted later."""
        for item in list(self._waiting):
            if item[1] is future and not isinstance(item[0], str):
                self._waiting.remove(item)
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)

    def _do(
        self,
        wanted: Answer | str,
        future: Future[int],
        session: "Answerer",
        *,
        is_quick: bool = False,
    ) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if isinstance(wanted, str):
            try:
                future.set_result(session.count(wanted))
            except UsageError as error:
                future.set_exception(error)
            return
        try:
            prompt = self.prompt(wanted, session)
            session.check(prompt, wanted.request, is_quick=is_quick)
            future.set_result(len(prompt.tokens))
        except Exception as error:
            future.set_exception(error)
