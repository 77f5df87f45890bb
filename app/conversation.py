"""A conversation that always fits the context, by letting go of its oldest turns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from backends.base import PromptTooLongError
from backends.chat.chat_template import Message, Prompt


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
        """The prompt of the last turns that leave room for an answer, and how many went.

        When turns must go, a quarter of the room is made free at once: the next prompts then
        begin as this one does, and the prompt cache holds.

        Raises:
            PromptTooLongError: the last message does not fit even alone; nothing was dropped.
        """
        room = n_ctx - min(n_ctx // 4, 512)
        head = [Message("system", self.system)] if self.system else []
        dropped = 0
        prompt = render([*head, *self.turns])
        if len(prompt.tokens) > room:
            room -= room // 4
        while len(prompt.tokens) > room and dropped < len(self.turns) - 1:
            # A turn goes with its answer, so that the rest still begins with the user.
            dropped = min(dropped + 2, len(self.turns) - 1)
            prompt = render([*head, *self.turns[dropped:]])
        if len(prompt.tokens) >= n_ctx:
            raise PromptTooLongError(len(prompt.tokens), n_ctx)
        del self.turns[:dropped]
        return prompt, dropped
