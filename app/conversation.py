"""A conversation that always fits the context, by letting go of its oldest turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backends.base import PromptTooLongError
from backends.chat_template import Message, Prompt


@dataclass(slots=True)
class Conversation:
    """What was said, oldest first, below an optional system message."""

    system: str = ""
    turns: list[Message] = field(default_factory=list)

    def add(self, role: str, content: str) -> None:
        """Append one turn."""
        self.turns.append(Message(role, content))

    def clear(self) -> None:
        """Forget every turn, keep the system message."""
        self.turns.clear()

    def fit(self, render: Callable[[Sequence[Message]], Prompt], n_ctx: int) -> tuple[Prompt, int]:
        """The prompt of as many last turns as leave room for an answer, and how many went.

        Raises:
            PromptTooLongError: the last message does not fit even alone; nothing was dropped.
        """
        room = n_ctx - min(n_ctx // 4, 512)
        head = [Message("system", self.system)] if self.system else []
        dropped = 0
        prompt = render([*head, *self.turns])
        while len(prompt.tokens) > room and dropped < len(self.turns) - 1:
            # A turn goes with its answer, so that the rest still begins with the user.
            dropped = min(dropped + 2, len(self.turns) - 1)
            prompt = render([*head, *self.turns[dropped:]])
        if len(prompt.tokens) >= n_ctx:
            raise PromptTooLongError(len(prompt.tokens), n_ctx)
        del self.turns[:dropped]
        return prompt, dropped
