"""Checks the body of a request against the fields that a dialect knows."""

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError, from_json

from app.chat.attachments import block
from app.chat.conversation import Conversation
from app.chat.named_files import read_file
from app.serve.refusal import RefusedError, invalid
from app.serve.server_options import MOST_FIELDS, MOST_ITEMS, MOST_VALUES
from app.settings.answering import Answering
from backends.base import UsageError
from backends.chat.message import Tool
from backends.chat.reply_form import THINK_OFF
from decoding.sampling.settings import SamplingSettings

_WANTED = "Input should be "
_OF_PYTHON = re.compile(r" or instance of \w+| after validation.*|, unable to parse.*")
_OF_PARSER = {
    "EOF while parsing": "it ends within",
    "expected ident": "unknown word",
    "Out of range float values are not JSON compliant": "a number is too large",
}
MOST_SHOWN = 200
"""Longest message about one field; it may repeat what was sent."""


def wrong_field(error: ValidationError, body: object) -> RefusedError:
    """The refusal of a body whose check found errors: it tells the first."""
    # What is read is bounded, so errors are few; pydantic has no way to ask for the first.
    errors = error.errors(include_url=False, include_input=False)
    places = [_place(one["loc"], body, is_missing=one["type"] == "missing") for one in errors]
    # Where several types are possible, what is wrong within one of them tells most.
    first = places[0]
    inner = max((place for place in places if place[: len(first)] == first), key=len)
    found = [one for one, place in zip(errors, places, strict=True) if place == inner]
    place = ".".join(inner)[:MOST_SHOWN]
    if found[0]["type"] == "extra_forbidden":
        return invalid(f"{place} is not supported", place)
    if found[0]["type"] == "missing":
        return invalid(f"{place} is missing", place)
    message = _message(found)
    return invalid(f"{place}: {message}"[:MOST_SHOWN] if place else f"the body {message}", place)


def _message(errors: Sequence[ErrorDetails]) -> str:
    """What is wrong with a value that may be of several types, each with its error."""
    said = [_OF_PYTHON.sub("", error["msg"]).replace("dictionary", "object") for error in errors]
    for text in said:
        if not text.startswith(_WANTED):  # its type is right
            return re.sub(r"^\w+ should", "must", text)
    return f"must be {' or '.join(dict.fromkeys(text.removeprefix(_WANTED) for text in said))}"


def _place(parts: tuple[int | str, ...], body: object, *, is_missing: bool) -> tuple[str, ...]:
    """Where an error is; the names of types that were tried, which no body has, are left out."""
    place: list[str] = []
    at = body
    for number, part in enumerate(parts, start=1):
        if isinstance(at, dict) and part in at:
            at = cast("dict[object, object]", at)[part]
        elif isinstance(at, list) and isinstance(part, int):
            items = cast("list[object]", at)
            at = items[part] if part < len(items) else None
        elif not (is_missing and number == len(parts)):
            continue
        place.append(str(part))
    return tuple(place)


_Body = TypeVar("_Body", bound=BaseModel)
_Item = TypeVar("_Item")

Items = Annotated[list[_Item], Field(max_length=MOST_ITEMS, fail_fast=True)]
"""A list of bounded length whose first wrong item ends the check: each error costs microseconds."""

_MOST_FIELDS = {"most": MOST_FIELDS}


class _Part(BaseModel):
    ignored: ClassVar[frozenset[str]] = frozenset()
    """Harmless fields that change no answer."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        """Clients write null for what they do not ask for, also where they do not have to."""
        if not isinstance(value, dict):
            return value
        fields = cast("dict[str, object]", value)
        if len(fields) > MOST_FIELDS:  # before pydantic builds an error for each
            raise PydanticCustomError(
                "too_many_fields", "must have at most {most} fields", _MOST_FIELDS
            )
        return {
            name: item
            for name, item in fields.items()
            if item is not None and name not in cls.ignored
        }


class Fields(_Part):
    """Base of what comes in: types are exact, numbers finite, and unknown fields refused by name.

    A dialect names the harmless fields that it ignores.
    """

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Lenient(_Part):
    """Base of parts whose unknown fields change no answer and are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False, frozen=True)


def read_body(kind: type[_Body], body: bytes) -> _Body:
    """Read a body.

    What a check costs is bounded before it begins, as other requests and replies wait for it.

    Raises:
        RefusedError: it is not JSON, has too many values, or a field is unknown, of the wrong type
            or out of range.
    """
    value = _json(body)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise wrong_field(error, value) from None
    except RecursionError:
        raise invalid("the body is nested too deeply") from None


def _json(body: bytes) -> object:
    """The value of a JSON text whose numbers are finite."""
    if _values(body) > MOST_VALUES:
        raise invalid(f"the body has more than {MOST_VALUES:,} values")
    try:
        value: object = from_json(body, allow_inf_nan=False)
        json.dumps(value, allow_nan=False)  # parsing makes an infinite number of 1e999
    except ValueError as error:
        why = str(error)
        for words, plain in _OF_PARSER.items():
            why = why.replace(words, plain)
        raise invalid(f"the body is not valid JSON: {why}"[:MOST_SHOWN]) from None
    return value


def _values(body: bytes) -> int:
    """About how many values a JSON text has, by its marks outside of strings.

    What is escaped in a string is removed first, so that each quote begins or ends one.
    """
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if (quotes := bare.count(b'"')) > 4 * MOST_VALUES:  # two for each key and two for each value
        return quotes
    marks = b"".join(bare.split(b'"')[::2])
    return sum(marks.count(mark) for mark in (b",", b"[", b"{"))


def asked_sampling(
    defaults: Answering, **asked: float | tuple[tuple[int, float], ...] | None
) -> SamplingSettings:
    """Settings of one reply; what is None was not asked for.

    Without a seed each request draws its own, unless the server was given one.
    """
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    try:
        return replace(defaults.for_an_answer(), **given)
    except UsageError as error:
        what = error.what.removeprefix("--")
        raise invalid(f"{what}: {error.why}", what.partition(" ")[0].replace("-", "_")) from None


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_EFFORTS = {"none": THINK_OFF, "minimal": "low", "xhigh": "high", "max": "high"}


def thinking(
    conversation: Conversation, defaults: Answering, effort: str | None, budget: int | None = None
) -> int:
    """Note in a conversation how much thinking a request asks for; returns the budget in tokens."""
    conversation.think = _EFFORTS.get(effort, str(effort)) if effort else defaults.think
    return defaults.think_budget if budget is None else budget


def seeds(first: int, count: int) -> list[int]:
    """Seeds of several replies to one request: the first is the one asked for.

    The others are not its neighbours, which are often asked for themselves.
    """
    factor, step = 6364136223846793005, 1442695040888963407
    return [first, *((first * factor + choice * step) % (1 << 63) for choice in range(1, count))]


_TEXT_KINDS = ("text", "input_text", "output_text", "refusal")
_IMAGE_KINDS = ("image_url", "input_image", "image")
_FILE_KINDS = ("file", "input_file", "document", *_IMAGE_KINDS)


class SentFile(Lenient):
    """A file as OpenAI has it: in its part (responses), or under `file` (chat)."""

    file_data: str = ""
    filename: Annotated[str, Field(max_length=1024)] = ""


class Source(Lenient):
    """The contents of a document as Anthropic has it."""

    type: Annotated[str, Field(max_length=64)] = ""
    media_type: Annotated[str, Field(max_length=256)] = ""
    data: str = ""


class ImageUrl(Lenient):
    """An image as OpenAI has it: an address that is its contents."""

    url: str = ""


class TextPart(SentFile):
    """A part of a message's content, or of a tool's output."""

    type: Annotated[str, Field(max_length=64)]
    text: str = ""
    refusal: str = ""
    file: SentFile | None = None
    source: Source = Source()
    image_url: str | ImageUrl = ""
    title: Annotated[str, Field(max_length=1024)] = ""


Content = str | Items[TextPart]


def text_of(content: str | Sequence[TextPart], place: str, separator: str = "") -> str:
    """The text of a content; a file in it stands apart."""
    if isinstance(content, str):
        return content
    texts = [part_text(part, f"{place}.{index}") for index, part in enumerate(content)]
    if not separator and any(part.type in _FILE_KINDS for part in content):
        separator = "\n\n"
    return separator.join(texts)


def part_text(part: TextPart, place: str) -> str:
    """The text of a part, of a file as one is added to a message; an image has a marker in it.

    Raises:
        RefusedError: it is no text, or a file that cannot be read or did not come along.
    """
    if part.type in _TEXT_KINDS:
        return part.text or part.refusal
    if part.type not in _FILE_KINDS:
        what = f"{place}.type"
        raise invalid(f"{what}: {part.type!r} is not supported", what)
    source, file = part.source, part.file or part
    kind = "image" if part.type in _IMAGE_KINDS else "file"
    name = file.filename or part.title or ("image" if kind == "image" else "document")
    url = part.image_url if isinstance(part.image_url, str) else part.image_url.url
    sent = source.data or file.file_data or (url if url.startswith("data:") else "")
    head, _, data = sent.rpartition(",")
    if source.type == "text":
        content = source.data.encode(errors="replace")
    elif data and source.type in ("", "base64"):
        try:
            content = b64decode(data, validate=True)
        except ValueError as error:
            raise invalid(f"{place}: {name} is not base64", place) from error
    else:
        raise invalid(f"{place}: send the {kind} itself, in base64: none is fetched or kept", place)
    is_page = "html" in source.media_type + head and not name.endswith(".html")
    try:
        return block(read_file(f"{name}.html" if is_page else name, content))
    except UsageError as error:
        raise invalid(f"{place}: {error.what}", place) from error


def as_tool(name: str, description: str, schema: dict[str, object]) -> Tool:
    return Tool(name, description, json.dumps(schema, ensure_ascii=False))
