"""Counts tokens and builds prompts on the engine's thread, between two steps of an answer."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from app.chat.conversation import Infill, RawText
from app.engine.answer import Answer, Request
from app.engine.session import Session
from backends.base import PromptTooLargeError, PromptTooLongError, Tokenizer
from backends.chat.chat_template import Prompt

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


_MOST_PER_TOKEN = 16
"""Characters for each token of the context that are still turned into tokens; a guess, not
measured. Prose has 4 or 5; only long runs of spaces could have as many and fit after all."""


def prompt_for(session: Session, answer: Answer) -> Prompt:
    """The prompt of an answer, which is built once for one session.

    Raises:
        UsageError: as of prompt_of.
    """
    if answer.prepared is not None and answer.prepared[0] is session:
        return answer.prepared[1]
    prompt, answer.dropped = prompt_of(session, answer.request)
    answer.form = prompt.form
    answer.prepared = session, prompt
    return prompt


def prompt_of(session: Session, request: Request) -> tuple[Prompt, int]:
    """The prompt of a request, and how many of its oldest turns were left out.

    Raises:
        PromptTooLargeError: it is far too long, so that its tokens were not even counted.
        PromptTooLongError: it leaves no room for an answer, also without the oldest turns where
            these may be left out.
        UsageError: the model was not trained to fill gaps.
    """
    size, n_ctx = _least_size(request), session.context.n_ctx
    if size > _MOST_PER_TOKEN * n_ctx:  # else others would wait for seconds while it is read
        raise PromptTooLargeError(size, n_ctx)
    if request.text is None and request.may_drop:
        prompt, dropped = session.prompt(request.conversation, request.tools)
        return session.continued(prompt, request.partial, request.begun), dropped
    text = request.text
    prompt = _whole(session, request) if text is None else _of_text(session, text)
    if len(prompt.tokens) >= session.context.n_ctx:
        raise PromptTooLongError(len(prompt.tokens), session.context.n_ctx)
    return prompt, 0


def _least_size(request: Request) -> int:
    """Characters of the part of a request that is never left out."""
    text, conversation = request.text, request.conversation
    if isinstance(text, RawText):
        return len(text.text)
    if text is not None:
        return len(text.before) + len(text.after)
    turns = conversation.turns[-1:] if request.may_drop else conversation.turns
    calls = [call.arguments for turn in turns for call in turn.calls]
    told = [conversation.system, request.partial, *(turn.content for turn in turns), *calls]
    tools = [text for tool in request.tools for text in (tool.description, tool.parameters)]
    return sum(map(len, [*told, *tools]))


def _of_text(session: Session, text: RawText | Infill) -> Prompt:
    if isinstance(text, RawText):
        return session.raw_prompt(text.text)
    return session.infill_prompt(text.before, text.after)


def _whole(session: Session, request: Request) -> Prompt:
    prompt = session.whole_prompt(request.conversation, request.tools)
    return session.continued(prompt, request.partial, request.begun)


CountTokens = Callable[[str], Future[int]]
"""Counts the tokens of a text in the background."""

"""Most of an answer's time that counting may take."""


class TokenCounts:
    """A queue of texts to count: any thread may `ask`, the engine's thread counts."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._waiting: deque[tuple[str, Future[int]]] = deque()
        self._clock = clock
        self._next_at = float("-inf")
        """When an answer may be delayed by a count again."""

    def ask(self, text: str) -> Future[int]:
        """Request the number of tokens of a text."""
        future: Future[int] = Future()
        self._waiting.append((text, future))
        return future

    def count_all(self, tokenizer: Tokenizer) -> None:
        """Count all queued texts."""
        while self._waiting:
            self._count_next(tokenizer)

    def count_beside(self, tokenizer: Tokenizer) -> None:
        """Count queued texts beside an answer, as long as they take little of its time."""
        while self._waiting and (began := self._clock()) >= self._next_at:
            self._count_next(tokenizer)
            ended = self._clock()
            self._next_at = ended + (ended - began) / _SHARE

    def _count_next(self, tokenizer: Tokenizer) -> None:
        text, future = self._waiting.popleft()
        if future.set_running_or_notify_cancel():  # a cancelled one is not counted
            future.set_result(len(tokenizer.encode(text, special=False)))
