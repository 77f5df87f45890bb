"""Splits the growing text of a reply into content, reasoning and tool calls."""

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
from backends.chat.reply_form import THINKING, ReplyForm


class ReplySplitter:
    """Splits one reply; the same text gives the same events, however it is cut.

    tools: those that are offered. most_calls: after so many, what follows is left out.
    has_thinking: whether the reply may begin with thinking.
    """

    def __init__(
        self,
        form: ReplyForm,
        tools: Sequence[Tool] = (),
        most_calls: int | None = None,
        *,
        has_thinking: bool = True,
    ) -> None:
        self._text = GrowingText()
        self._calls = OpenCalls(tools, most_calls)
        self._parts = self._read(form, has_thinking=has_thinking)
        self._logprobs: tuple[TokenLogprob, ...] = ()
        self.reasoning_length = 0

    @property
    def has_calls(self) -> bool:
        """Whether a tool was called so far."""
        return self._calls.count > 0

    def feed(self, delta: TextDelta) -> Iterator[Delta]:
        """What is certain once this text was added.

        Log probabilities go with the next content; those of reasoning and of calls are left out.
        """
        self._text.rest += delta.text
        self._logprobs += delta.logprobs
        yield from self._certain()

    def finish(self) -> Iterator[Delta]:
        """What is left at the end of the text."""
        self._text.has_ended = True
        yield from self._certain()
        if self._logprobs and not self.has_calls:
            yield TextDelta("", self._logprobs)

    def _certain(self) -> Iterator[Delta]:
        for part in self._parts:
            if part is None:
                return
            if isinstance(part, TextDelta):
                yield TextDelta(part.text, self._logprobs)
            else:
                yield part
            self._logprobs = ()

    def _read(self, form: ReplyForm, *, has_thinking: bool) -> Contents:
        if has_thinking:
            for part in _thinking(self._text, form.thinking):
                self.reasoning_length = self._text.taken
                yield part
            self.reasoning_length = self._text.taken
        yield from contents(self._text, self._calls, form.tools)


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
