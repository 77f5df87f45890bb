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
            PromptTooLongError: the last message does not fit even alone.
        """
        room = n_ctx - min(n_ctx // 4, 512)
        dropped = 0
        prompt = render(self._messages())
        while len(prompt.tokens) > room and len(self.turns) > 1:
            # A turn goes with its answer, so that the rest still begins with the user.
            gone = 2 if len(self.turns) > 2 else 1
            del self.turns[:gone]
            dropped += gone
            prompt = render(self._messages())
        if len(prompt.tokens) >= n_ctx:
            raise PromptTooLongError(len(prompt.tokens), n_ctx)
        return prompt, dropped

    def _messages(self) -> list[Message]:
        head = [Message("system", self.system)] if self.system else []
        return [*head, *self.turns]
