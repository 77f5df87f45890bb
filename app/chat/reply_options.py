"""What one reply must look like, what is known of it in advance, and what is to be told of it."""

from dataclasses import dataclass

from decoding.constraint.grammar import Grammar


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """Options of one reply beside its prompt, its sampling and its length.

    stops: texts that end it and are not part of it. grammar: what its text must match, None if
    anything may come. prediction: text that it will repeat in large parts; it only speeds it up.
    top_logprobs: of how many of the likeliest tokens the log probability is told at each position,
    beside that of the token itself; None if none is. shows_control: whether the texts of control
    tokens are part of its text, as those that open a tool call are.
    """

    stops: tuple[str, ...] = ()
    grammar: Grammar | None = None
    prediction: str = ""
    top_logprobs: int | None = None
    shows_control: bool = False


USUAL = ReplyOptions()
