"""Splits the reply of a reasoning model into its thinking and its answer."""

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"


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
    if body.startswith(OPEN):
        thinking, end, answer = body[len(OPEN) :].partition(CLOSE)
        return Parts(thinking.strip(), answer.lstrip(), not end)
    if OPEN.startswith(body) and body:
        return Parts("", "", True)
    if CLOSE in text and OPEN not in text:
        thinking, _, answer = text.partition(CLOSE)
        return Parts(thinking.strip(), answer.lstrip(), False)
    return Parts("", text, False)
