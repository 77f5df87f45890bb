"""Replies in channels, as gpt-oss writes them: the analysis is thinking, the rest is content."""

from backends.base import Tokenizer
from backends.chat.control_marks import ControlMarks
from backends.chat.thinking import OPEN, split

_START, _CHANNEL, _MESSAGE, _END = b"<|start|>", b"<|channel|>", b"<|message|>", b"<|end|>"
_ANALYSIS, _FINAL = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
OPENING = "<|start|>assistant"
"""What a prompt for a reply in channels ends with."""


def has_channels(prompt: str, template: str) -> bool:
    """Whether the reply to a prompt is written in channels."""
    return prompt.endswith(OPENING) and _CHANNEL.decode() in template


class ChannelSpeller:
    """Spells the tokens of a reply in order, with tags around its thinking in place of channels.

    Engines show the marks of channels as text, or as nothing.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._header: bytes | None = None
        """What a message's header says so far, None within the message."""
        self._is_thinking = False

    def __call__(self, token: int) -> bytes:
        """The bytes that a token adds."""
        name = self._tokenizer.entry(token)
        if name in (_START, _CHANNEL):
            self._header = b""
            return b""
        if name == _MESSAGE:
            is_thinking, self._header = (self._header or b"").startswith(b"analysis"), None
            before, self._is_thinking = self._is_thinking, is_thinking
            if is_thinking:
                return b"\n\n" if before else b"<think>"
            return b"</think>\n\n" if before else b""
        if name == _END:
            return b""
        piece = self._tokenizer.piece(token)
        if self._header is None:
            return piece
        self._header += piece
        return b""


def in_channels(reply: str, marks: ControlMarks) -> str:
    """The beginning of a reply as the model writes it, its own texts hidden by marks."""
    parts = split(reply)
    final = f"{_FINAL}{marks.hide(parts.answer)}"
    if not reply.lstrip().startswith(OPEN):
        return final
    thinking = f"{_ANALYSIS}{marks.hide(parts.thinking)}"
    return thinking if parts.is_thinking else f"{thinking}{_END.decode()}{OPENING}{final}"
