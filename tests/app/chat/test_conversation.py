"""Fitting a conversation into a context: whole exchanges are left out, the oldest first."""

from collections.abc import Sequence

import pytest

from app.chat.conversation import Conversation
from backends.base import PromptTooLongError
from backends.chat.chat_template import Prompt
from backends.chat.message import Message


def render(messages: Sequence[Message]) -> Prompt:
    """A prompt of one token per character."""
    return Prompt([0] * sum(len(message.content) for message in messages))


def conversation(lengths: Sequence[int], system: str = "") -> Conversation:
    roles = ("user", "assistant")
    turns = [Message(roles[place % 2], "x" * length) for place, length in enumerate(lengths)]
    return Conversation(system, turns)


def test_a_conversation_that_fits_is_kept_whole() -> None:
    prompt, dropped = conversation([10, 10, 10], "sys").fit(render, 100)
    assert (len(prompt.tokens), dropped) == (33, 0)


def test_the_oldest_exchanges_are_left_out_until_a_quarter_of_the_room_is_free() -> None:
    whole = conversation([10, 10, 10, 10, 10, 10, 20], "sys")
    prompt, dropped = whole.fit(render, 100)  # room for 75, then 57
    assert (len(prompt.tokens), dropped) == (43, 4)
    assert len(whole.turns) == 7
    del whole.turns[:dropped]
    again, more = whole.fit(render, 100)
    assert (again, more) == (prompt, 0)


def test_the_last_turn_alone_may_fill_the_context_but_not_exceed_it() -> None:
    prompt, dropped = conversation([10, 10, 99]).fit(render, 100)
    assert (len(prompt.tokens), dropped) == (99, 2)
    with pytest.raises(PromptTooLongError):
        conversation([10, 10, 100]).fit(render, 100)


def test_a_long_conversation_is_rendered_a_few_times_however_much_is_left_out() -> None:
    rendered: list[int] = []

    def counting(messages: Sequence[Message]) -> Prompt:
        rendered.append(len(messages))
        return render(messages)

    _, dropped = conversation([10] * 5001).fit(counting, 100)
    assert dropped == 4996
    assert len(rendered) <= 16


def test_the_system_messages_at_the_beginning_are_one() -> None:
    hello, later = Message("user", "Hi"), Message("system", "Be kind.")
    messages = [Message("system", "You are A."), Message("system", "Env B."), hello, later]
    assert Conversation.of(messages) == Conversation("You are A.\n\nEnv B.", [hello, later])
    assert Conversation.of([hello], "Be brief.") == Conversation("Be brief.", [hello])
    assert Conversation.of([]) == Conversation()
