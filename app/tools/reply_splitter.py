"""Splits the growing text of a reply into content, reasoning and tool calls."""

import json
import re
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial

from app.tools.events import Delta, ReasoningDelta, TextDelta, TokenLogprob
from app.tools.json_calls import (
    GrowingText,
    Reading,
    Splitting,
    cut_call,
    json_calls,
    streamed_object,
)
from app.tools.open_calls import OpenCalls
from backends.chat.message import Tool
from backends.chat.reply_form import THINKING, ReplyForm, ToolForm

FUNCTION, FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_NAME = re.compile(r"\s*<\w+=([^<>\n]+)>")
_NO_NAME = re.compile(r"\s*<\w+=[^<>\n]*[<\n]|\s*<\w+=>")


def xml_call(text: GrowingText, calls: OpenCalls) -> Splitting:
    """Read one call; nothing is taken, and False returned, if what follows is none."""
    if not (yield from text.opening((FUNCTION,))):
        return False
    name = yield from _name(text)
    if not name:
        return False
    yield calls.begin(name)
    between = "{"
    while (yield from text.opening((_PARAMETER, FUNCTION_END))) == _PARAMETER:
        key = yield from _name(text)
        if not key:
            break
        yield calls.arguments(f"{between}{json.dumps(key, ensure_ascii=False)}: ")
        yield from _value(text, calls, name, key)
        between = ", "
    yield calls.arguments("{}" if between == "{" else "}")
    yield from text.skip(FUNCTION_END)
    return True


def _name(text: GrowingText) -> Reading[str]:
    """Take the tag that follows and return the name in it; "" if it has none."""
    while True:
        tag = _NAME.match(text.rest)
        if tag is not None:
            text.take(tag.end())
            return tag[1].strip()
        if text.has_ended or _NO_NAME.match(text.rest):
            return ""
        yield


def _value(
    text: GrowingText, calls: OpenCalls, name: str, key: str
) -> Generator[Delta | None, None, None]:
    """Yield the value that follows as JSON, a text as it comes."""
    while not text.rest and not text.has_ended:
        yield
    if text.rest.startswith("\n"):
        text.take(1)
    ends = (_PARAMETER_END, _PARAMETER, FUNCTION_END)
    argument, is_text, whole = calls.argument(name, key), False, ""

    def told(piece: str) -> Delta | None:
        nonlocal is_text, whole
        whole += piece
        if is_text:
            return calls.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])
        if is_text := argument.is_text(whole):
            return calls.arguments(json.dumps(whole, ensure_ascii=False)[:-1])
        return None

    found = yield from text.until(ends, told, held="\n")
    yield calls.arguments('"' if is_text else argument.value(whole))
    if found.text not in ("", _PARAMETER_END):
        text.give_back(found.taken)  # the end of the parameter was left out


_TAG_END = "</tool_call>"
_FENCES = ("```json", "```")
_NAMED = re.compile(r"\s*([\w.\-]+)(?:\[CALL_ID\]\w+)?(?:\[ARGS\])?\s*(?=\{)")
_MAY_BE_NAMED = re.compile(r"\s*[\w.\-]*(\[[A-Z_]*(\]\w*(\[[A-Z]*\]?)?)?)?\s*")

Contents = Generator[Delta | None, None, None]
"""Yields what is certain, None where more text is awaited."""


def contents(
    text: GrowingText, calls: OpenCalls, form: ReplyForm, *, is_call: bool = False
) -> Contents:
    """The content of a reply and its calls. is_call: whether it can be nothing but a call."""
    if form.tools in (ToolForm.LLAMA, ToolForm.GENERIC):
        yield from _calls_at_once(text, calls)
    if is_call and not calls.count:
        yield from cut_call(text, calls)
    read = _MARKED.get(form.tools) if form.tools else None
    while read is not None and not calls.are_full:
        found = yield from text.until(form.call_marks, TextDelta)
        if not found.text:
            return
        if found.text == FUNCTION:
            text.give_back(found.taken.lstrip())
        if not (yield from read(text, calls)):
            if found.text == FUNCTION:
                text.take(len(FUNCTION))
            yield TextDelta(found.taken)  # it is no call: content after all
        else:
            yield from text.skip_space()
    yield from _remainder(text, is_dropped=calls.are_full)


def _remainder(text: GrowingText, *, is_dropped: bool) -> Contents:
    """All that follows as content; dropped after the last call that was allowed."""
    while True:
        rest = text.take(len(text.rest))
        if rest and not is_dropped:
            yield TextDelta(rest)
        if text.has_ended:
            return
        yield None


def _calls_at_once(text: GrowingText, calls: OpenCalls) -> Contents:
    """Calls that a reply begins with, unmarked or in a block of code."""
    fence = yield from text.opening(_FENCES)
    before = text.take_opening(fence) if fence else ""
    if not (yield from json_calls(text, calls, any_name=False)):
        text.give_back(before)
    elif fence:
        yield from text.skip("```")
    if calls.count:
        yield from text.skip_space()


def _tagged(text: GrowingText, calls: OpenCalls) -> Splitting:
    if not (yield from json_calls(text, calls, any_name=True)):
        return False
    yield from text.skip(_TAG_END)
    return True


def _xml(text: GrowingText, calls: OpenCalls) -> Splitting:
    if not (yield from xml_call(text, calls)):
        return (yield from _tagged(text, calls))
    yield from text.skip(_TAG_END)
    return True


def _mistral(text: GrowingText, calls: OpenCalls) -> Splitting:
    if (yield from text.opening(("[", "{"))):
        return (yield from json_calls(text, calls, any_name=True))
    while not (named := _NAMED.match(text.rest)):
        if text.has_ended or not _MAY_BE_NAMED.fullmatch(text.rest):
            return False
        yield None
    text.take(named.end())
    yield calls.begin(named[1])
    yield from streamed_object(text, calls)
    return True


_MARKED: dict[ToolForm, Callable[[GrowingText, OpenCalls], Splitting]] = {
    ToolForm.HERMES: _tagged,
    ToolForm.XML: _xml,
    ToolForm.LLAMA: partial(json_calls, any_name=True),
    ToolForm.MISTRAL: _mistral,
}
"""What reads a call after its mark."""


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
    yield from text.until((THINKING[opening or opened],), ReasoningDelta)
    yield from text.skip_space()
