"""Content and calls in the text of a reply, in each of the forms that models are taught."""

import re
from collections.abc import Callable, Generator

from app.serve.reply_events import Delta, TextDelta
from app.serve.tools.growing_text import Found, GrowingText, Reading
from app.serve.tools.json_calls import Splitting, cut_call, json_calls, streamed_object
from app.serve.tools.open_calls import OpenCalls
from app.serve.tools.xml_calls import FUNCTION, xml_call
from backends.chat.reply_form import ReplyForm, ToolForm

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
        found = yield from _content(text, form.call_marks)
        if not found.text:
            return
        if found.text == FUNCTION:
            text.give_back(found.taken.lstrip())
        if not (yield from read(text, calls)):
            yield TextDelta(_taken_again(text, found))
        else:
            yield from text.skip_space()
    yield from _remainder(text, is_dropped=calls.are_full)


def _taken_again(text: GrowingText, found: Found) -> str:
    """What was read for a call that is none: content after all."""
    if found.text == FUNCTION:
        text.take(len(FUNCTION))
    return found.taken


def _content(text: GrowingText, marks: tuple[str, ...]) -> Generator[Delta | None, None, Found]:
    pieces = text.until(marks)
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            return end.value
        yield None if piece is None else TextDelta(piece)


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
    elif fence and (yield from text.opening(("```",))):
        text.take_opening("```")
    if calls.count:
        yield from text.skip_space()


def _tagged(text: GrowingText, calls: OpenCalls) -> Splitting:
    if not (yield from json_calls(text, calls, any_name=True)):
        return False
    yield from _tag_end(text)
    return True


def _xml(text: GrowingText, calls: OpenCalls) -> Splitting:
    if not (yield from xml_call(text, calls)):
        return (yield from _tagged(text, calls))
    yield from _tag_end(text)
    return True


def _tag_end(text: GrowingText) -> Reading[None]:
    if (yield from text.opening((_TAG_END,))):
        text.take_opening(_TAG_END)


def _python(text: GrowingText, calls: OpenCalls) -> Splitting:
    return (yield from json_calls(text, calls, any_name=True))


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
    ToolForm.LLAMA: _python,
    ToolForm.MISTRAL: _mistral,
}
"""What reads a call after its mark."""
