"""What the next request is expected to begin with: all that will be sent, and nothing else."""

from dataclasses import replace

import pytest

from app.chat.attachments import Attachment, AttachmentKind
from app.dialogue.dialogue import Dialogue
from app.dialogue.next_request import Typed, next_request
from app.dialogue.tree import ASSISTANT, USER, Turn

PASTE = Attachment(AttachmentKind.PASTE, "[pasted 6 lines]", "1\n2\n3\n4\n5\n6")
FILE = Attachment(AttachmentKind.FILE, "notes/a.md", "walrus")


def answered(dialogue: Dialogue, question: str) -> list[Turn]:
    asked = dialogue.add(USER, question)
    answer = dialogue.add(ASSISTANT, "")
    answer.text, answer.ending = f"about {question}", "3 tokens"
    dialogue.save(answer)
    return [asked, answer]


@pytest.fixture
def dialogue() -> Dialogue:
    made = Dialogue(None, "be brief")
    answered(made, "first")
    answered(made, "second")
    return made


def contents(dialogue: Dialogue, typed: Typed) -> list[str]:
    return [turn.content for turn in next_request(dialogue, typed).conversation.turns]


SENT = ["first", "about first", "second", "about second"]


def test_what_leads_to_a_question_is_certain_while_nothing_is_typed(dialogue: Dialogue) -> None:
    expected = next_request(dialogue, Typed(at=3.0))
    assert expected.conversation == dialogue.conversation()
    assert expected.conversation.system == "be brief"
    assert (expected.is_typing, expected.typed_at) == (False, 3.0)


def test_a_typed_question_is_expected_as_it_would_be_sent(dialogue: Dialogue) -> None:
    typed = Typed("  see @notes/a.md and [pasted 6 lines] now", (PASTE, FILE), 5.0)
    expected = next_request(dialogue, typed)
    dialogue.add(USER, typed.text.strip(), typed.attachments)
    assert expected.conversation == dialogue.conversation()
    assert (expected.is_typing, expected.typed_at) == (True, 5.0)


def test_the_end_of_a_word_is_kept_though_it_is_not_sent(dialogue: Dialogue) -> None:
    assert contents(dialogue, Typed("why ")) == [*SENT, "why "]


@pytest.mark.parametrize("text", ["/", "/set temperature 0", "  /nosuch", "/tmp is what?"])
def test_a_command_is_no_message(dialogue: Dialogue, text: str) -> None:
    expected = next_request(dialogue, Typed(text))
    assert expected.conversation == dialogue.conversation()
    assert not expected.is_typing


def test_an_edited_question_follows_what_is_above_it(dialogue: Dialogue) -> None:
    dialogue.dropped = 2
    second = dialogue.turns[2]
    expected = next_request(dialogue, Typed("/why?"), second)
    dialogue.add_version(second, "/why?")
    assert expected.conversation == dialogue.conversation()
    assert expected.is_typing
    first = next_request(dialogue, Typed("anew"), dialogue.turns[0])
    assert [turn.content for turn in first.conversation.turns] == ["anew"]


def test_the_next_of_the_queue_is_certain_until_something_is_typed(dialogue: Dialogue) -> None:
    dialogue.enqueue("@notes/a.md third", (FILE,))
    dialogue.enqueue("fourth")
    expected = next_request(dialogue, Typed())
    assert expected.conversation.turns[-1].content == "a.md:\n```\nwalrus\n```\n\n@notes/a.md third"
    assert not expected.is_typing
    assert contents(dialogue, Typed("other")) == [*SENT, "other"]
    assert contents(dialogue, Typed("/set")) == SENT
    dialogue.next_queued()
    assert contents(dialogue, Typed()) == [*SENT, "fourth"]


def test_whatever_changes_is_followed(dialogue: Dialogue) -> None:
    typed = Typed("why")
    before = next_request(dialogue, typed)
    assert next_request(dialogue, replace(typed)) == before
    dialogue.set_system("be exact")
    assert next_request(dialogue, typed).conversation.system == "be exact"
    dialogue.drop_oldest(2)
    assert contents(dialogue, typed) == ["second", "about second", "why"]
    dialogue.turns[-1].text += ", continued"
    assert contents(dialogue, typed)[1] == "about second, continued"
    dialogue.show(dialogue.add_version(dialogue.turns[-1], "anew"))
    assert contents(dialogue, typed) == [*SENT[:3], "anew", "why"]
    assert contents(dialogue.fresh(), typed) == ["why"]


def test_what_was_told_does_not_change_any_more(dialogue: Dialogue) -> None:
    told = next_request(dialogue, Typed("why")).conversation
    before = list(told.turns)
    answered(dialogue, "third")
    next_request(dialogue, Typed("why not"))
    assert told.turns == before


def test_a_message_too_long_for_any_context_is_not_expected(dialogue: Dialogue) -> None:
    huge = Attachment(AttachmentKind.PASTE, "[pasted]", "x" * 2_000_001)
    assert contents(dialogue, Typed("[pasted] why", (huge,))) == SENT
