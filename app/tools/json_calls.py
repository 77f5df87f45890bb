"""Calls that are written as JSON objects: {"name": ..., "arguments": {...}}."""

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from app.tools.events import Delta
from app.tools.open_calls import OpenCalls, loads_finite

# Text that grows while it is read: what is decided never depends on how it was cut.

_Value = TypeVar("_Value")

Reading = Generator[None, None, _Value]
"""Waits for more text at each yield."""


@dataclass(slots=True)
class GrowingText:
    """The text that was not read yet. has_ended: no more will come. taken: characters read."""

    rest: str = ""
    has_ended: bool = False
    taken: int = 0

    def take(self, count: int) -> str:
        taken, self.rest = self.rest[:count], self.rest[count:]
        self.taken += len(taken)
        return taken

    def give_back(self, text: str) -> None:
        """Make text that was taken last the next one to be read."""
        self.rest = text + self.rest
        self.taken -= len(text)

    def opening(self, texts: Sequence[str]) -> Reading[str]:
        """The longest of these texts that follows, after any white space; "" if none does.

        Nothing is taken.
        """
        while True:
            body = self.rest.lstrip()
            is_open = any(text.startswith(body) and text != body for text in texts)
            if self.has_ended or not is_open:
                return max((text for text in texts if body.startswith(text)), key=len, default="")
            yield

    def take_opening(self, text: str) -> str:
        """Take a text that follows, and the white space before it."""
        return self.take(self.rest.index(text) + len(text))

    def skip(self, text: str) -> Reading[bool]:
        """Take a text that follows, and the white space before it; whether it does."""
        follows = bool((yield from self.opening((text,))))
        if follows:
            self.take_opening(text)
        return follows

    def skip_space(self) -> Reading[str]:
        skipped = ""
        while True:
            skipped += self.take(len(self.rest) - len(self.rest.lstrip()))
            if self.rest or self.has_ended:
                return skipped
            yield

    def until(
        self, texts: Sequence[str], told: Callable[[str], Delta | None], held: str | None = None
    ) -> "Generator[Delta | None, None, Found]":
        """Tell of the text before the first of these, as it comes; None where more is awaited.

        held: what is not told before the text that is found, but part of what is found: None for
        all white space, or one character, of which one is held.
        """
        while True:
            found = min(
                ((at, text) for text in texts if (at := self.rest.find(text)) >= 0), default=None
            )
            if found is not None:
                at, text = found
                before = _without_end(self.rest[:at], held)
                self.take(len(before))  # first: who gets it may ask how much was taken
                if before and (delta := told(before)):
                    yield delta
                return Found(text, self.take_opening(text))
            if self.has_ended:
                if self.rest and (delta := told(self.take(len(self.rest)))):
                    yield delta
                return Found("", "")
            safe = len(self.rest) - possible_start(self.rest, texts)
            safe = len(_without_end(self.rest[:safe], held))
            if safe and (delta := told(self.take(safe))):
                yield delta
            yield None


@dataclass(frozen=True, slots=True)
class Found:
    """A text that was found, "" if the end came; taken: all that was read for it."""

    text: str
    taken: str


def _without_end(text: str, held: str | None) -> str:
    return text.rstrip() if held is None else text.removesuffix(held)


def possible_start(text: str, texts: Sequence[str]) -> int:
    """Number of characters at the end that could begin one of the texts."""
    longest = max(map(len, texts)) - 1
    for size in range(min(longest, len(text)), 0, -1):
        if any(other.startswith(text[-size:]) for other in texts):
            return size
    return 0


Splitting = Generator[Delta | None, None, bool]
"""Yields what is certain, None where more text is awaited; returns whether a call was read."""

_STRING = r'"(?:[^"\\]|\\.)*"'
_HEAD = re.compile(
    rf'\s*\{{\s*"name"\s*:\s*({_STRING})\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{{)', re.DOTALL
)
_NAME = re.compile(rf'\s*\{{\s*"name"\s*:\s*({_STRING})', re.DOTALL)
_FIRST_KEY = re.compile(rf"\s*\{{\s*({_STRING})", re.DOTALL)
_MAY_BEGIN = re.compile(r'\s*(\{\s*("|$)|$)')
_KEYS = {f'"{key}"' for key in ("name", "arguments", "parameters", "function", "type", "id")}
"""What the object of a call begins with, in the forms that models are seen to write."""


def json_calls(text: GrowingText, calls: OpenCalls, *, any_name: bool) -> Splitting:
    """Read one call, several with a comma or semicolon between them, or an array of such.

    Nothing is taken, and False returned, if what follows is no call. any_name: whether tools that
    are not offered count as well, as where the text around tells that it is a call.
    """
    bracket = yield from text.opening(("[", "{"))
    is_array = bracket == "["
    before = text.take_opening("[") if is_array else ""
    if not (yield from json_call(text, calls, any_name=any_name)):
        text.give_back(before)
        return False
    while not calls.are_full:
        separator = yield from text.opening((",", ";", "{"))
        before = text.take_opening(separator) if separator in (",", ";") else ""
        is_call = bool(separator) and (yield from json_call(text, calls, any_name=any_name))
        if not is_call:
            text.give_back(before)
            break
    if is_array:
        yield from text.skip("]")
    return True


def json_call(text: GrowingText, calls: OpenCalls, *, any_name: bool) -> Splitting:
    """Read one call; nothing is taken, and False returned, if what follows is none."""
    scan, scanned = ObjectScan(), 0
    while True:
        if not _may_be_call(text.rest):
            return False
        head = _HEAD.match(text.rest)
        if head is not None:
            name = _loaded(head[1])
            if not isinstance(name, str) or not (any_name or calls.knows(name)):
                return False
            text.take(head.end())
            yield calls.begin(name)
            yield from streamed_object(text, calls)
            yield from _end_of_object(text)
            return True
        scanned += scan.feed(text.rest[scanned:])
        if scan.is_done:
            return (yield from _whole_call(text, scanned, calls, any_name=any_name))
        if text.has_ended:
            return False
        yield None


def cut_call(text: GrowingText, calls: OpenCalls) -> Generator[Delta, None, None]:
    """Take the beginning of a call that the end of the text cut, and yield the call if it is named.

    Nothing is taken if the text is none.
    """
    if not text.has_ended or not _may_be_call(text.rest):
        return
    named = _NAME.match(text.rest)
    name = _loaded(named[1]) if named else None
    text.take(len(text.rest))
    if isinstance(name, str) and calls.knows(name):
        yield calls.begin(name)


def streamed_object(text: GrowingText, calls: OpenCalls) -> Generator[Delta | None, None, None]:
    """Yield an object that follows as the arguments of the latest call, as it comes."""
    scan = ObjectScan()
    while True:
        taken = text.take(scan.feed(text.rest))
        if taken:
            yield calls.arguments(taken)
        if scan.is_done or text.has_ended:
            return
        yield None


class ObjectScan:
    """Finds the end of a JSON object in text that grows, by its brackets outside of strings."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        self.is_done = False

    def feed(self, text: str) -> int:
        """How many characters of this text belong to the object."""
        for count, character in enumerate(text, start=1):
            self._step(character)
            if self.is_done:
                return count
        return len(text)

    def _step(self, character: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif self._in_string:
            self._is_escaped = character == "\\"
            self._in_string = character != '"'
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self.is_done = self._depth <= 0


def _end_of_object(text: GrowingText) -> Reading[None]:
    """Take what follows the arguments in the object of a call: other keys, and its end."""
    following = yield from text.opening(("}", ","))
    if following == "}":
        text.take_opening("}")
    elif following == "," and (yield from _has_more_keys(text)):
        scan = ObjectScan()
        scan.feed("{")
        while True:
            text.take(scan.feed(text.rest))
            if scan.is_done or text.has_ended:
                return
            yield


def _has_more_keys(text: GrowingText) -> Reading[bool]:
    """Whether a key follows the comma; a model may also have left out the end of the object."""
    while True:
        after = text.rest.lstrip()[1:].lstrip()
        if after or text.has_ended:
            return after.startswith('"')
        yield


def _may_be_call(text: str) -> bool:
    """Whether more text could make it a call."""
    key = _FIRST_KEY.match(text)
    if key is not None:
        return key[1] in _KEYS
    return _MAY_BEGIN.match(text) is not None


def _whole_call(text: GrowingText, end: int, calls: OpenCalls, *, any_name: bool) -> Splitting:
    call = _call_of(_loaded(text.rest[:end]))
    if call is None:
        return False
    name, arguments = call
    if not (any_name or (calls.knows(name) and arguments is not None)):
        return False
    text.take(end)
    yield calls.begin(name)
    yield calls.arguments("{}" if arguments is None else arguments)
    return True


def _call_of(value: object) -> tuple[str, str | None] | None:
    """Name and arguments of the call that an object means, however its keys are ordered or nested.

    Arguments: None if it has none.
    """
    if not isinstance(value, dict):
        return None
    fields = cast("Mapping[str, object]", value)
    inner = fields.get("function")
    if isinstance(inner, dict):
        return _call_of(cast("object", inner))
    name = fields.get("name", inner)
    if not isinstance(name, str):
        return None
    arguments = fields.get("arguments", fields.get("parameters"))
    if arguments in (None, ""):
        return name, None
    if isinstance(arguments, str):
        return (name, arguments) if isinstance(_loaded(arguments), dict) else None
    return (name, json.dumps(arguments)) if isinstance(arguments, dict) else None


def _loaded(text: str) -> object:
    try:
        return loads_finite(text)
    except (ValueError, RecursionError):
        return None
