"""What is expected leads to the request that comes, and when a text that pauses is read on."""

import pytest

from app.ahead.expected import (
    AFTER_SENTENCE_SECONDS,
    ELSEWHERE_SECONDS,
    Expectation,
    Expected,
    ends_sentence,
    pause_before,
)
from app.ahead.reading_ahead import REST_SECONDS
from app.chat.conversation import Conversation
from backends.chat.message import Message

BEFORE = (Message("user", "Hi"), Message("assistant", "Hello"))


def conversation(*turns: Message, system: str = "") -> Conversation:
    return Conversation(system, list(turns))


def test_what_is_typed_leads_to_the_message_that_is_sent() -> None:
    typed = conversation(*BEFORE, Message("user", "one two "))
    expected = Expected(typed, 0.0, True)
    assert expected.leads_to(conversation(*BEFORE, Message("user", "one two")))
    assert expected.leads_to(conversation(*BEFORE, Message("user", "one two three")))
    assert Expected(conversation(*BEFORE), 0.0, False).leads_to(typed)


@pytest.mark.parametrize(
    "sent",
    [
        conversation(),
        conversation(Message("user", "one two")),
        conversation(*BEFORE, Message("user", "other")),
        conversation(*BEFORE, Message("user", "one two"), system="Be brief."),
        conversation(*BEFORE[:1], Message("assistant", "No"), Message("user", "one two")),
    ],
)
def test_another_chat_or_text_is_another_request(sent: Conversation) -> None:
    typed = conversation(*BEFORE, Message("user", "one two "))
    assert not Expected(typed, 0.0, True).leads_to(sent)


def test_what_is_read_leads_to_a_request_that_is_on_its_way() -> None:
    typed, sent = conversation(Message("user", "one ")), conversation(Message("user", "one two"))
    expectation = Expectation(lambda: "", lambda: 0.0, lambda _: None)
    assert not expectation.led_to(sent)
    expectation.latest = Expected(typed, 0.0, True)
    assert not expectation.led_to(sent)  # nothing of it is read yet
    expectation.followed = expectation.latest
    expectation.latest = None
    assert expectation.latest is None
    assert expectation.led_to(sent)


def test_a_text_typed_since_does_not_lead_to_its_request_while_another_is_read() -> None:
    """The pass that runs is of the long text, which was cleared: it is to be dropped."""
    long, sent = conversation(Message("user", "many words")), conversation(Message("user", "why"))
    expectation = Expectation(lambda: "", lambda: 0.0, lambda _: None)
    expectation.latest = Expected(long, 0.0, True)
    expectation.followed = expectation.latest
    expectation.latest = Expected(sent, 0.0, True)
    assert not expectation.led_to(sent)
    assert expectation.led_to(long)


@pytest.mark.parametrize(
    "text", ["Why?", "It is so. ", "He said: “Go!”", "(and so on…)", "为什么\uff1f", "x = f(y)."]
)
def test_the_end_of_a_sentence_is_known(text: str) -> None:
    assert ends_sentence(text)
    assert pause_before(text) == AFTER_SENTENCE_SECONDS < REST_SECONDS


@pytest.mark.parametrize("text", ["", " ", "Why", "Why? Be", "a, ", "f(x)", "1.5"])
def test_what_is_not_one_waits_longer(text: str) -> None:
    assert not ends_sentence(text)
    assert pause_before(text) == ELSEWHERE_SECONDS > REST_SECONDS
