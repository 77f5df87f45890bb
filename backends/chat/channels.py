"""Replies in channels, as gpt-oss writes them: the analysis is thinking, the rest is content."""

import re

from backends.base import Tokenizer
from backends.chat.control_marks import ControlMarks
from backends.chat.thinking import OPEN, split

_START, _CHANNEL, _MESSAGE, _END = b"<|start|>", b"<|channel|>", b"<|message|>", b"<|end|>"
_ENDS = (_END, b"<|call|>", b"<|return|>")
_CALLED = re.compile(rb"to=functions\.([\w.-]+)")
_ANALYSIS, _FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
OPENING = "<|start|>assistant"
"""What a prompt for a reply in channels ends with."""


def has_channels(prompt: str, template: str) -> bool:
    """Whether the reply to a prompt is written in channels."""
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
        """The bytes that a token adds."""
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
        """What a message begins with, by its header."""
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
