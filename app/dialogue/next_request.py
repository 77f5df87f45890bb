"""What the next request will begin with, worked out of a chat and of what is typed."""

from dataclasses import dataclass

from app.ahead.expected import Expected
from app.chat.attachments import Attachment, in_full
from app.chat.conversation import Conversation
from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import USER, Turn
from app.history.records import Queued
from backends.chat.message import Message, Tool
from backends.chat.reply_form import THINK_AUTO

_MOST_CHARACTERS = 2_000_000
"""Longest message that is expected: splitting more into tokens would hold up the model."""

_COMMAND = "/"


@dataclass(frozen=True, slots=True)
class Typed:
    """What stands in the prompt, with all that would be sent along.

    attachments: as far as their names are complete; files of folders also before a word is typed.
    at: time.monotonic() of the last change.
    """

    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    at: float = 0.0


def next_request(
    dialogue: Dialogue,
    typed: Typed,
    edited: Turn | None = None,
    think: str = THINK_AUTO,
    tools: tuple[Tool, ...] = (),
) -> Expected:
    """What is expected of a chat that waits for a question.

    edited: the question that the typed one would stand beside. think: as in Conversation. tools: as
    in Request.
    """
    is_new, text = edited is None, typed.text.lstrip()
    led = dialogue.conversation() if edited is None else dialogue.leading_to(edited)
    queued = dialogue.queue[0] if is_new and dialogue.queue and not text else None
    is_typing = bool(text or typed.attachments) and not (is_new and text.startswith(_COMMAND))
    asked = typed if is_typing else queued  # an empty prompt sends what is queued
    message = _message(asked) if asked is not None else []
    conversation = Conversation(led.system, [*led.turns, *message], think)
    return Expected(conversation, typed.at, is_typing, tools)


def _message(asked: Typed | Queued) -> list[Message]:
    size = len(asked.text) + sum(len(one.text) for one in asked.attachments)
    if size > _MOST_CHARACTERS:
        return []
    return [Message(USER, in_full(asked.text.lstrip(), asked.attachments))]
