"""The form in which a chat template takes a conversation without leaving any of it out.

Templates refuse system messages, or several turns of one role in a row; others read contents as
lists of parts, and write nothing of a text. Each form is tried with a word of its own in place of
each content, so that neither a short content nor one that the template changes misleads.
"""

import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from backends.chat.message import Message

_WORD = re.compile(r"zq[0-9]+qz")

TEMPLATE_REFUSES = "TemplateError: "
"""What errors begin with that a template raises itself."""

Try = Callable[[Sequence[Message], Set[str]], dict[str, str]]
"""Renders messages, with the contents of these roles as parts, to {"text"} or {"error"}."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a template takes a conversation; left_out: how many of its messages it leaves out."""

    change: Callable[[Sequence[Message]], list[Message]]
    in_parts: Set[str] = frozenset()
    left_out: int = 0


def accepted_form(messages: Sequence[Message], render: Try) -> Form | str:
    """The form that changes a conversation least of those that lose nothing of it.

    If each loses something, the first that keeps the user's last message and all that follows it.
    If none does: why the first failed, "" if the template leaves that message out.
    """
    said = _with_words(messages)
    last = max((place for place, turn in enumerate(said) if turn.role == "user"), default=0)
    question = {word for turn in said[last:] for word in _words(turn)}
    lossy: list[Form] = []
    errors: list[str] = []
    is_left_out = False
    for change in (list[Message], _system_first, _alternating, _without_system):
        for in_parts, answer in _tries(change(said), render):
            text = answer.get("text")
            if text is None:
                errors.append(answer["error"])
                continue
            lost = _lost(said, text, in_parts)
            if not lost:
                return Form(change, in_parts)
            if lost & question:
                is_left_out = True
            else:
                lossy.append(Form(change, in_parts, len(lost)))
    return lossy[0] if lossy else "" if is_left_out else errors[0]


def _tries(said: Sequence[Message], render: Try) -> Iterator[tuple[Set[str], dict[str, str]]]:
    """Yield what a template makes of messages, at last with parts for the roles that want them."""
    in_parts: Set[str] = frozenset()
    while True:
        answer = render(said, in_parts)
        yield in_parts, answer
        lost = _lost(said, answer.get("text", ""), in_parts)
        wanting = {turn.role for turn in said if lost & {*_words(turn)}}
        if wanting <= in_parts or answer.get("error", "").startswith(TEMPLATE_REFUSES):
            return
        in_parts |= wanting


def _with_words(messages: Sequence[Message]) -> list[Message]:
    """Messages with a word in place of each content but beside calls, where families drop it."""
    return [
        replace(turn, content=f"zq{place}qz") if turn.content.strip() and not turn.calls else turn
        for place, turn in enumerate(messages)
    ]


def _words(turn: Message) -> list[str]:
    return [] if turn.calls else _WORD.findall(turn.content)


def _lost(said: Sequence[Message], text: str, in_parts: Set[str]) -> set[str]:
    """Words that are not in a text, or only in a list of parts that was written as it is."""
    words = {word for turn in said for word in _words(turn)}
    listed = re.findall(rf"""['"]text['"]: ['"].*?({_WORD.pattern})""", text) if in_parts else ()
    return words - ({*_WORD.findall(text)} - {*listed})


def _system_first(messages: Sequence[Message]) -> list[Message]:
    system = [turn.content for turn in messages if turn.role == "system"]
    others = [turn for turn in messages if turn.role != "system"]
    return [Message("system", "\n\n".join(system)), *others] if system else others


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """The same, with neighbours of one role as one, and the user as the first to speak."""
    turns = _system_first(messages)
    head = turns[:1] if turns and turns[0].role == "system" else []
    return [*head, *_merged(turns[len(head) :])]


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """The same, with the system message before the first words of the user."""
    turns = _system_first(messages)
    if turns and turns[0].role == "system":
        turns[0] = Message("user", turns[0].content)
    return _merged(turns)


def _merged(turns: Sequence[Message]) -> list[Message]:
    merged: list[Message] = []
    for turn in turns:
        last = merged[-1] if merged else None
        is_plain = last is not None and not (last.calls or last.answers or turn.answers)
        if last is not None and is_plain and last.role == turn.role:
            merged[-1] = replace(turn, content=f"{last.content}\n\n{turn.content}")
        else:
            merged.append(turn)
    return [Message("user", ""), *merged] if merged and merged[0].role == "assistant" else merged
