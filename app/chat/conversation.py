"""What a reply continues, and what it must look like."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from backends.base import PromptTooLongError
from backends.chat.chat_template import Prompt
from backends.chat.message import Message
from backends.chat.reply_form import THINK_AUTO
from decoding.constraint.grammar import Grammar

_LEFT_FOR_ANSWER = 512
"""Tokens that stay free for an answer; of a small context a quarter."""


def most_of_prompt(n_ctx: int) -> int:
    """The most tokens of a prompt that leaves room for an answer."""
    return n_ctx - min(n_ctx // 4, _LEFT_FOR_ANSWER)


@dataclass(slots=True)
class Conversation:
    """think: whether, or how much, the model thinks first; one of EFFORTS."""

    system: str = ""
    turns: list[Message] = field(default_factory=list[Message])
    think: str = THINK_AUTO

    @classmethod
    def of(cls, messages: Iterable[Message], instructions: str = "") -> Self:
        """The conversation of messages; the system messages that it begins with become one."""
        system, turns = [instructions] if instructions else [], list(messages)
        while turns and turns[0].role == "system":
            system.append(turns.pop(0).content)
        return cls("\n\n".join(filter(None, system)), turns)

    def add(self, role: str, content: str) -> None:
        self.turns.append(Message(role, content))

    def messages(self, dropped: int = 0) -> list[Message]:
        """The system message, if any, and the turns but for the oldest ones."""
        head = [Message("system", self.system)] if self.system else []
        return [*head, *self.turns[dropped:]]

    def fit(self, render: Callable[[Sequence[Message]], Prompt], n_ctx: int) -> tuple[Prompt, int]:
        """Prompt of the latest turns that leave room for an answer, and the number left out.

        If any must be left out, a quarter of the room is freed at once: without those turns the
        next prompts begin as this one does, and the prompt cache can be reused.

        Raises:
            PromptTooLongError: the last message does not fit even alone.
        """
        room = most_of_prompt(n_ctx)
        dropped = 0
        prompt = render(self.messages())
        if len(prompt.tokens) > room and len(self.turns) > 1:
            room -= room // 4
            # A question is dropped with its answer: chat templates expect the user's turn first.
            asked = [at for at, turn in enumerate(self.turns) if turn.role == "user"]
            last = asked.pop() if asked else len(self.turns) - 1
            choices = [at for at in asked if at]

            def fits(choice: int) -> bool:
                return len(render(self.messages(choice)).tokens) <= room

            first = bisect_left(choices, True, key=fits)
            dropped = choices[first] if first < len(choices) else last
            prompt = render(self.messages(dropped))
        if len(prompt.tokens) >= n_ctx:
            raise PromptTooLongError(len(prompt.tokens), n_ctx)
        return prompt, dropped


@dataclass(frozen=True, slots=True)
class Infill:
    """A gap to fill between two texts, for models that were trained to."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """Options of one reply beside its prompt, its sampling and its length.

    stops: texts that end it and are not part of it. grammar: what its text must match, None if
    anything may come. prediction: text that it will repeat in large parts; it only speeds it up.
    top_logprobs: of how many of the likeliest tokens the log probability is told at each position,
    beside that of the token itself; None if none is. shows_control: whether the texts of control
    tokens are part of its text, as those that open a tool call are. think_budget: tokens of
    thinking after which it is ended; 0 for any number.
    """

    stops: tuple[str, ...] = ()
    grammar: Grammar | None = None
    prediction: str = ""
    top_logprobs: int | None = None
    shows_control: bool = False
    think_budget: int = 0


USUAL = ReplyOptions()
