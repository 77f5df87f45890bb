"""Thinking in replies: told between <think> and </think>, whatever marks a family has for it."""

from dataclasses import dataclass

from backends.base import Tokenizer

OPEN, CLOSE = "<think>", "</think>"

THINKING = {
    OPEN: CLOSE,
    "[THINK]": "[/THINK]",
    "<thinking>": "</thinking>",
    "<seed:think>": "</seed:think>",
}
"""Texts that open thinking, at the beginning of a reply only, and those that close it."""

OF_THINKING = frozenset({*THINKING, *THINKING.values()})

_CHANNEL = "<|channel>"
"""Gemma 4's mark, after which a line names the channel: it thinks in each."""

OWN_MARKS = {**THINKING, _CHANNEL: "<channel|>"}
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
            return (f"{opening}thought\n" if opening == _CHANNEL else opening), closing
    return OPEN, CLOSE


class ThinkingSpeller:
    """Spells the tokens that open and close thinking in a reply: engines have them as marks."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._told: dict[int, bytes] = {}
        for opening, closing in OWN_MARKS.items():
            for mark, told in ((opening, OPEN), (closing, CLOSE)):
                if mark in tokenizer.special_texts:
                    token = tokenizer.encode(mark, special=True)[-1]
                    self._told[token] = told.encode()
        self._is_named = True
        """Whether what names a channel was read, after the mark of one."""

    def __call__(self, token: int) -> bytes | None:
        """The bytes that a token adds, None if its piece."""
        told = self._told.get(token)
        if told is not None:
            self._is_named = self._tokenizer.entry(token) != _CHANNEL.encode()
            return told
        if self._is_named:
            return None
        _, end, rest = self._tokenizer.piece(token).partition(b"\n")
        self._is_named = bool(end)
        return rest
