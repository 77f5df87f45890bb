"""The forms that a template takes a conversation in, and that a model writes replies in."""

import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum

from backends.base import Tokenizer
from backends.chat.message import ControlMarks, Message

# The form in which a chat template takes a conversation without leaving any of it out.
#
# Templates refuse system messages, or several turns of one role in a row; others read contents as
# lists of parts, and write nothing of a text. Each form is tried with a word of its own in place
# of each content, so that neither a short content nor one that the template changes misleads.

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


class ToolForm(StrEnum):
    HERMES = "hermes"
    """JSON objects between <tool_call> and </tool_call>: Hermes, Qwen; gpt-oss as spelled."""
    XML = "xml"
    """Functions and parameters in tags, between the same: Qwen3-Coder."""
    LLAMA = "llama"
    """A reply that is a JSON object, perhaps after <|python_tag|>: Llama 3.x."""
    MISTRAL = "mistral"
    """After [TOOL_CALLS], an array of JSON objects, or names and [ARGS]."""
    GENERIC = "generic"
    """A reply that is a JSON object or an array of such, as described in the system message."""


_CALL_MARKS = {
    ToolForm.HERMES: ("<tool_call>",),
    ToolForm.XML: ("<tool_call>", "<function="),
    ToolForm.LLAMA: ("<|python_tag|>",),
    ToolForm.MISTRAL: ("[TOOL_CALLS]",),
}


CALL_MARKS = tuple({mark for marks in _CALL_MARKS.values() for mark in marks})


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """What a reply may be made of, beside its content.

    tools: how it calls tools, None if it has none to call. thinking: the text with which the
    prompt opens the thinking that the reply begins with, "" if it opens none. channels: whether it
    is written in channels.
    """

    tools: ToolForm | None = None
    thinking: str = ""
    channels: bool = False

    @property
    def call_marks(self) -> tuple[str, ...]:
        return _CALL_MARKS.get(self.tools, ()) if self.tools else ()


PLAIN = ReplyForm()


def tool_form(source: str) -> ToolForm | None:
    """The form that a chat template teaches, by its text; None if it teaches no known one."""
    if "tools" not in source:
        return None
    if "<|channel|>" in source and "<|call|>" in source:
        return ToolForm.HERMES  # as which calls in channels are spelled
    if "<tool_call>" in source and "<arg_key>" not in source:
        return ToolForm.XML if "<parameter=" in source else ToolForm.HERMES
    if "[TOOL_CALLS]" in source:
        return ToolForm.MISTRAL
    if "<|start_header_id|>" in source and "<function=" not in source:
        return ToolForm.LLAMA
    return None


THINK_AUTO, THINK_OFF, THINK_ON = "auto", "off", "on"
EFFORTS = (THINK_AUTO, THINK_OFF, THINK_ON, "low", "medium", "high")
"""Whether, and how much, a model thinks before it answers; auto: as its template has it. Templates
that know no degrees think or do not."""


def thinking_variables(think: str, template: str) -> dict[str, object]:
    """What a template is told of an effort, by the names that families give it.

    enable_thinking: Qwen, GLM, SmolLM, Gemma. thinking: DeepSeek, Granite. reasoning_effort:
    gpt-oss, Mistral; where it knows no "none", the least is low.
    """
    if think == THINK_AUTO:
        return {}
    told: dict[str, object] = dict.fromkeys(("enable_thinking", "thinking"), think != THINK_OFF)
    if think == THINK_OFF:
        told["reasoning_effort"] = "none" if re.search("['\"]none['\"]", template) else "low"
    elif think != THINK_ON:
        told["reasoning_effort"] = think
    return told


def offers_thinking(template: str) -> bool:
    """Whether a template knows any thinking, by the names and marks of its family."""
    names = ("enable_thinking", "thinking", "reasoning_effort", "<|channel|>", *OF_THINKING)
    return any(name in template for name in names)


OPEN, CLOSE = "<think>", "</think>"

THINKING = {
    OPEN: CLOSE,
    "[THINK]": "[/THINK]",
    "<thinking>": "</thinking>",
    "<seed:think>": "</seed:think>",
}
"""Texts that open thinking, at the beginning of a reply only, and those that close it."""

OF_THINKING = frozenset({*THINKING, *THINKING.values()})

_GEMMA_CHANNEL = "<|channel>"
"""Gemma 4's mark, after which a line names the channel: it thinks in each."""

OWN_MARKS = {**THINKING, _GEMMA_CHANNEL: "<channel|>"}
"""Texts and marks with which families open thinking, and those that close it."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Thinking and answer of a reply. is_thinking: the thinking has not ended yet."""

    thinking: str
    answer: str
    is_thinking: bool


def split(text: str) -> Parts:
    """Split a reply so far; only a block at its very beginning is thinking.

    Some templates open the block themselves, so that a reply may contain only its end.
    """
    body = text.lstrip()
    for opening, closing in THINKING.items():
        if body.startswith(opening):
            thinking, end, answer = body[len(opening) :].partition(closing)
            return Parts(thinking.strip(), answer.lstrip(), not end)
    if OPEN.startswith(body) and body:
        return Parts("", "", True)
    thinking, end, answer = text.partition(CLOSE)
    if end and OPEN not in thinking:
        return Parts(thinking.strip(), answer.lstrip(), False)
    return Parts("", text, False)


def opened_thinking(prompt: str) -> str:
    """The text at the end of a prompt that opens thinking, "" if none does."""
    end = prompt.rstrip()
    return next((text for text in THINKING if end.endswith(text)), "")


def own_marks(special_texts: tuple[str, ...], template: str) -> tuple[str, str]:
    """What opens and closes thinking in the prompts of a model with this template."""
    for opening, closing in OWN_MARKS.items():
        if opening in special_texts and opening in template:
            return (f"{opening}thought\n" if opening == _GEMMA_CHANNEL else opening), closing
    return OPEN, CLOSE


class ThinkingSpeller:
    """Spells the tokens that open and close thinking in a reply: engines have them as marks."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.told: dict[int, bytes] = {}
        """What tokens add that are not their pieces; none of a vocabulary without such marks."""
        for opening, closing in OWN_MARKS.items():
            for mark, told in ((opening, OPEN), (closing, CLOSE)):
                if mark in tokenizer.special_texts:
                    token = tokenizer.encode(mark, special=True)[-1]
                    self.told[token] = told.encode()
        self._is_named = True
        """Whether what names a channel was read, after the mark of one."""

    def __call__(self, token: int) -> bytes | None:
        """The bytes that a token adds, None if its piece."""
        told = self.told.get(token)
        if told is not None:
            self._is_named = self._tokenizer.entry(token) != _GEMMA_CHANNEL.encode()
            return told
        if self._is_named:
            return None
        _, end, rest = self._tokenizer.piece(token).partition(b"\n")
        self._is_named = bool(end)
        return rest


_START, _CHANNEL, _MESSAGE, _END = b"<|start|>", b"<|channel|>", b"<|message|>", b"<|end|>"
_ENDS = (_END, b"<|call|>", b"<|return|>")
_CALLED = re.compile(rb"to=functions\.([\w.-]+)")
_ANALYSIS, _FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
OPENING = "<|start|>assistant"
"""What a prompt for a reply in channels ends with."""


def has_channels(prompt: str, template: str) -> bool:
    return prompt.endswith(OPENING) and _CHANNEL.decode() in template


class ChannelSpeller:
    """Spells the tokens of a reply in order, with tags around thinking and calls in place of marks.

    Engines show the marks of channels as text, or as nothing.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._header: bytes | None = None
        """What a message's header says so far, None within the message."""
        self._has_begun = False
        self._is_thinking = self._is_call = False

    def __call__(self, token: int) -> bytes:
        name, piece = self._tokenizer.entry(token), self._tokenizer.piece(token)
        if not self._has_begun and piece.strip() == b"to":
            self._header = b""  # the prompt has begun it
        self._has_begun = True
        if name == _START:
            self._header = b""
        elif name == _CHANNEL:
            self._header = (self._header or b"") + _CHANNEL
        elif name == _MESSAGE:
            return self._opened()
        elif name in _ENDS:
            was_call, self._is_call = self._is_call, False
            return b"}\n</tool_call>" if was_call else b""
        elif self._header is None:
            return piece
        else:
            self._header += piece
        return b""

    def _opened(self) -> bytes:
        header, self._header = self._header or b"", None
        called = _CALLED.search(header)
        before, self._is_thinking = self._is_thinking, b"<|channel|>analysis" in header
        self._is_call = called is not None
        if self._is_thinking:
            return b"\n\n" if before else b"<think>"
        call = b'<tool_call>\n{"name": "%b", "arguments": ' % called[1] if called else b""
        return (b"</think>\n\n" if before else b"") + call


def in_channels(reply: str, marks: ControlMarks) -> str:
    """The beginning of a reply as the model writes it, its own texts hidden by marks."""
    parts = split(reply)
    final = f"{_FINAL}{marks.hide(parts.answer)}"
    if not reply.lstrip().startswith(OPEN):
        return final
    thinking = f"{_ANALYSIS}{marks.hide(parts.thinking)}"
    return thinking if parts.is_thinking else f"{thinking}{_END.decode()}{OPENING}{final}"
