"""Splits the growing text of a reply into content, reasoning and tool calls."""

from collections import deque
from collections.abc import Iterator, Sequence

from app.serve.reply_events import (
    Delta,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
)
from app.serve.tools.call_forms import Contents, contents
from app.serve.tools.growing_text import GrowingText
from app.serve.tools.open_calls import OpenCalls
from backends.chat.message import Tool
from backends.chat.reply_form import ReplyForm
from backends.chat.thinking import THINKING


class ReplySplitter:
    """Splits one reply; the same text gives the same events, however it is cut.

    tools: those that are offered. most_calls: after so many, what follows is left out.
    has_thinking: whether the reply may begin with thinking. is_call: whether it can then be nothing
    but a call, so that one that was cut is never content.
    """

    def __init__(
        self,
        form: ReplyForm,
        tools: Sequence[Tool] = (),
        most_calls: int | None = None,
        *,
        has_thinking: bool = True,
        is_call: bool = False,
    ) -> None:
        self._text = GrowingText()
        self._calls = OpenCalls(tools, most_calls)
        self._parts = self._read(form, has_thinking=has_thinking, is_call=is_call)
        self._logprobs: deque[TokenLogprob] = deque()
        """Those of tokens that end after all content so far."""
        self.reasoning_length = 0

    @property
    def has_calls(self) -> bool:
        """Whether a tool was called so far."""
        return self._calls.count > 0

    def feed(self, delta: TextDelta) -> Iterator[Delta]:
        """What is certain once this text was added.

        Log probabilities go with the content that their tokens stand in; those of reasoning and of
        calls are left out.
        """
        self._text.rest += delta.text
        self._logprobs += delta.logprobs
        yield from self._certain()

    def finish(self) -> Iterator[Delta]:
        """What is left at the end of the text."""
        self._text.has_ended = True
        yield from self._certain()

    def _certain(self) -> Iterator[Delta]:
        for part in self._parts:
            if part is None:
                return
            if isinstance(part, TextDelta):
                yield TextDelta(part.text, tuple(self._within(len(part.text))))
            else:
                yield part

    def _within(self, length: int) -> Iterator[TokenLogprob]:
        """Log probabilities of the tokens that have a part in the text that was just taken.

        One that has no characters belongs to the character that it begins.
        """
        end = self._text.taken
        while self._logprobs and self._logprobs[0].begin < end:
            token = self._logprobs.popleft()
            if max(token.end, token.begin + 1) > end - length:
                yield token

    def _read(self, form: ReplyForm, *, has_thinking: bool, is_call: bool) -> Contents:
        if has_thinking:
            for part in _thinking(self._text, form.thinking):
                self.reasoning_length = self._text.taken
                yield part
            self.reasoning_length = self._text.taken
        yield from contents(self._text, self._calls, form, is_call=is_call)


def _thinking(text: GrowingText, opened: str) -> Contents:
    """What a reply thinks before its content. opened: the text with which the prompt opened it."""
    opening = yield from text.opening((opened,) if opened else tuple(THINKING))
    if opening:
        text.take_opening(opening)
    elif not opened:
        return
    yield from text.skip_space()
    pieces = text.until((THINKING[opening or opened],))
    for piece in pieces:
        yield None if piece is None else ReasoningDelta(piece)
    yield from text.skip_space()
