"""Turns of a conversation, tools that a model may call, and texts that are to stay texts."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import cast

from backends.base.images import Image, with_images


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may ask to have called; parameters: its JSON schema, as text."""

    name: str
    description: str = ""
    parameters: str = "{}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool that the model asks for; arguments: a JSON object, as text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """Turn of a conversation; role is system, user, assistant or tool.

    calls: the tool calls that an assistant's turn ends with. answers: the id of the call whose
    result a tool's turn is. thinking: what an assistant thought before its content.
    """

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    thinking: str = ""


def whole_characters(text: str) -> str:
    """Text with unpaired surrogates, as in undecodable file names, replaced by question marks."""
    return text.encode(errors="replace").decode()


Change = Callable[[str], str]


def changed_message(message: Message, change: Change) -> Message:
    calls = tuple(
        ToolCall(change(call.id), change(call.name), changed_json(call.arguments, change))
        for call in message.calls
    )
    content, thinking = change(message.content), change(message.thinking)
    return Message(message.role, content, calls, change(message.answers), thinking)


def changed_tool(tool: Tool, change: Change) -> Tool:
    parameters = changed_json(tool.parameters, change)
    return Tool(change(tool.name), change(tool.description), parameters)


def changed_json(text: str, change: Change) -> str:
    """JSON with every string and key in it changed; what is not JSON is changed as one text."""
    try:
        value = json.loads(text)
        changed = _changed(value, change)
    except (ValueError, RecursionError):
        return change(text)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def texts_of(messages: Sequence[Message], tools: Sequence[Tool] = ()) -> list[str]:
    texts: list[str] = []

    def seen(text: str) -> str:
        texts.append(text)
        return text

    for message in messages:
        changed_message(message, seen)
    for tool in tools:
        changed_tool(tool, seen)
    return texts


def _changed(value: object, change: Change) -> object:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_changed(item, change) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {change(key): _changed(item, change) for key, item in items}
    return value


_MARKS = range(0xE000, 0xF900)
"""Private-use characters, of which an unused one, with a number, replaces a control text."""

_LONGEST_NUMBER = 9


class ControlMarks:
    """Keeps control texts in user text from becoming control tokens.

    known: texts in which the mark must not occur.
    """

    def __init__(self, special_texts: Sequence[str], known: Sequence[str]) -> None:
        self._special_texts = sorted(filter(None, special_texts), key=len, reverse=True)
        self.hidden: list[str | Image] = []
        self.mark = unused_mark((*known, *special_texts))
        number = rf"([0-9]{{1,{_LONGEST_NUMBER}}})"
        self._shown_mark = re.compile(f"{self.mark}{number}{self.mark}")

    def copy(self) -> "ControlMarks":
        """Marks of the same texts, to which more can be added."""
        marks = copy(self)
        marks.hidden = list(self.hidden)
        return marks

    def hide(self, content: str) -> str:
        """A content without control texts and images, which a mark stands for."""
        pieces = with_images(content)
        for place, piece in enumerate(pieces):
            if not isinstance(piece, str):
                pieces[place] = self._marked(piece)
        content = "".join(map(str, pieces))
        for text in self._special_texts:
            if text in content:
                content = content.replace(text, self._marked(text))
        return content

    def _marked(self, hidden: str | Image) -> str:
        self.hidden.append(hidden)
        return f"{self.mark}{len(self.hidden) - 1}{self.mark}"

    def split(self, text: str) -> list[tuple[str | Image, bool]]:
        """Pieces of text, each with whether control texts in it are control tokens."""
        if not self.hidden:
            return [(text, True)]
        return [
            (piece, True) if index % 2 == 0 else (self._shown(piece), False)
            for index, piece in enumerate(self._shown_mark.split(text))
            if piece
        ]

    def _shown(self, number: str) -> str | Image:
        """Text behind a mark; a template may write marks of its own."""
        return self.hidden[int(number)] if int(number) < len(self.hidden) else number


def unused_mark(texts: Sequence[str]) -> str:
    """Private-use character that is in none of the texts."""
    marks = map(chr, _MARKS)
    return next((mark for mark in marks if not any(mark in text for text in texts)), chr(_MARKS[0]))


# Text that stays text: it becomes none of the tokens that structure prompts.
#
# Engines match user-defined tokens in any text, and families use such tokens as marks of turns.

Encode = Callable[[str], list[int]]

_TAG = re.compile(r"</?[a-z]+[0-9]?>")
"""As of HTML, which some vocabularies have tokens for."""


def marks_of(texts: Iterable[str], template: str | None) -> tuple[str, ...]:
    """Of the texts of user-defined tokens those that may be marks.

    The others stand for white space, or are tags that the chat template does not use.
    """
    return tuple(
        text
        for text in texts
        if len(text.strip()) > 1 and not (_TAG.fullmatch(text) and text not in (template or ""))
    )


def adds_space(encode: Encode, piece: Callable[[int], bytes]) -> bool:
    """Whether a space is put before every text that is encoded, as SentencePiece does."""
    return any(piece(token).startswith(b" ") for token in encode("a")[:1])


def following_tokens(encode: Encode, text: str, *, has_space: bool) -> list[int]:
    """Tokens of a text that follows another. has_space: whether each has a space before it."""
    if has_space:
        before, both = encode("\n"), encode(f"\n{text}")
        if both[: len(before)] == before:
            return both[len(before) :]
    return encode(text)


def plain_tokens(
    encode: Encode, piece: Callable[[int], bytes], text: str, marks: Iterable[str]
) -> list[int]:
    """Tokens of a text that is cut within each mark in it, so that no mark is matched."""
    first, *others = _pieces(text, marks)
    tokens = encode(first)
    has_space = bool(others) and adds_space(encode, piece)
    for part in others:
        tokens += following_tokens(encode, part, has_space=has_space)
    return tokens


def _pieces(text: str, marks: Iterable[str]) -> Iterator[str]:
    """Parts of a text, of which none holds a mark: each is cut after its first character."""
    cuts = sorted({at + 1 for mark in marks for at in _places(text, mark)})
    yield from (text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True))


def _places(text: str, mark: str) -> Iterator[int]:
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + 1)
