"""The next request, as far as it is known before it comes."""

from dataclasses import dataclass

from app.chat.conversation import Conversation


@dataclass(frozen=True, slots=True)
class Expected:
    """A conversation that the next request is expected to begin with.

    conversation: ends with what is typed so far as the user's turn, attachments in full, or with
    the last answer while nothing is typed; not to be changed any more. typed_at: time.monotonic()
    of the last key. is_typing: whether its last word may still change; what is certain as it
    stands is read at once. chat: its number in the history, None if not saved.
    """

    conversation: Conversation
    typed_at: float
    is_typing: bool
    chat: int | None = None


@dataclass(slots=True)
class Expectation:
    """What is expected at present: any thread sets it, the engine's thread follows."""

    latest: Expected | None = None
