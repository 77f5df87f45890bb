"""Calls that are written as tags: <function=name><parameter=key>value</parameter></function>."""

import json
import re
from collections.abc import Generator

from app.serve.reply_events import Delta
from app.serve.tools.growing_text import GrowingText, Reading
from app.serve.tools.json_calls import Splitting
from app.serve.tools.open_calls import OpenCalls

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
    if (yield from text.opening((FUNCTION_END,))):
        text.take_opening(FUNCTION_END)
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
    yield from _line_break(text)
    ends = (_PARAMETER_END, _PARAMETER, FUNCTION_END)
    pieces = text.until(ends, held="\n")
    argument, is_text, whole = calls.argument(name, key), False, ""
    while True:
        try:
            piece = next(pieces)
        except StopIteration as end:
            found = end.value
            break
        if piece is None:
            yield None
            continue
        whole += piece
        if is_text:
            yield calls.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])
        elif is_text := argument.is_text(whole):
            yield calls.arguments(json.dumps(whole, ensure_ascii=False)[:-1])
    yield calls.arguments('"' if is_text else argument.value(whole))
    if found.text not in ("", _PARAMETER_END):
        text.give_back(found.taken)  # the end of the parameter was left out


def _line_break(text: GrowingText) -> Reading[None]:
    """Take the line break that follows."""
    while not text.rest and not text.has_ended:
        yield
    if text.rest.startswith("\n"):
        text.take(1)
