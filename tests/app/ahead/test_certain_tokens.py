"""What is certain of a prompt whose last message is still typed."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ahead.certain_tokens import BegunPrompt, CertainTokens, finished_words
from app.ahead.expected import Expected
from app.chat.conversation import Conversation
from app.tools.read_only import TOOLS
from backends.chat.chat_template import ChatTemplate
from backends.chat.message import Message
from tests.fixtures.chatml import ChatmlHere
from tests.fixtures.tokenizers import END, START, ByteTokenizer, ToyTokenizer

if TYPE_CHECKING:
    from backends.chat.template_process import TemplateProcess

N_CTX = 4096
EARLIER = [Message("user", "Hi"), Message("assistant", "Hello")]


def made(process: ChatmlHere | None = None) -> ChatTemplate:
    return ChatTemplate(ByteTokenizer("any"), cast("TemplateProcess", process or ChatmlHere()))


def expected(text: str, *, is_typing: bool = True, system: str = "") -> Expected:
    turns = [*EARLIER, Message("user", text)] if text else EARLIER
    return Expected(Conversation(system, list(turns)), 0.0, is_typing)


def begun(text: str, *, is_typing: bool = True) -> BegunPrompt:
    return CertainTokens(made(), N_CTX).of(expected(text, is_typing=is_typing))


def test_the_last_word_is_certain_only_when_white_space_follows() -> None:
    assert finished_words("one two thr") == "one two"
    assert finished_words("one two ") == "one two"
    assert finished_words("one\n\ntwo\n") == "one\n\ntwo"
    assert finished_words(" one") == ""
    assert finished_words("") == ""
    assert finished_words("one 我们今天下午三点钟在图书馆门口见面然后一起去看电影吧") == (
        "one 我们今天下午三点钟在图书馆门口见面然"
    )


@pytest.mark.slow
@given(words=st.lists(st.text("ab<|im_end>", min_size=1, max_size=9), max_size=4), more=st.text())
def test_whatever_is_typed_next_begins_with_what_is_certain(words: list[str], more: str) -> None:
    template = made()
    text = "".join(f"{word} " for word in words)
    certain = CertainTokens(template, N_CTX).of(expected(f"{text}x")).tokens
    sent = template.prompt([*EARLIER, Message("user", f"{text}{more}")]).tokens
    assert sent[: len(certain)] == certain
    assert ByteTokenizer("any").spell(certain).endswith(f"{START}user\n{text.strip()}")


def test_with_nothing_typed_the_opening_of_the_next_turn_is_certain() -> None:
    found = begun("")
    text = f"{START}user\nHi{END}\n{START}assistant\nHello{END}\n{START}user\n"
    assert ByteTokenizer("any").spell(found.tokens) == text
    assert (found.untyped, found.total, found.has_text) == (len(found.tokens),) * 2 + (False,)
    assert begun("word").untyped == found.untyped


def test_of_a_message_that_is_certain_all_but_the_last_token_is() -> None:
    found = begun("one two", is_typing=False)
    sent = made().prompt([*EARLIER, Message("user", "one two")]).tokens
    assert found.tokens == sent[:-1]
    assert found.total == len(sent)


@pytest.mark.parametrize("is_typing", [True, False])
def test_tools_are_part_of_what_is_certain(is_typing: bool) -> None:
    told = replace(expected("one two ", is_typing=is_typing), tools=TOOLS)
    certain, template = CertainTokens(made(), N_CTX), made()
    plain = certain.of(replace(told, tools=())).tokens
    found = certain.of(told).tokens
    sent = template.prompt([*EARLIER, Message("user", "one two ")], TOOLS).tokens
    assert sent[: len(found)] == found != plain
    assert TOOLS[0].name in ByteTokenizer("any").spell(found)
    assert certain.of(replace(told, tools=())).tokens == plain


def test_tokens_that_depend_on_what_follows_are_not_certain() -> None:
    """Here a token may end a word and begin the next one, and another a word and the line."""
    pieces = [b"", *(bytes([code]) for code in range(256)), b"d a", b"d 1", b"d\n\n", b"w"]
    tokenizer = ToyTokenizer(pieces)
    found = CertainTokens(ChatTemplate(tokenizer, cast("TemplateProcess", ChatmlHere())), N_CTX)
    tokens = found.of(Expected(Conversation("", [Message("user", "a word x")]), 0.0, True)).tokens
    assert b"".join(map(tokenizer.piece, tokens)).endswith(b"User: a wor")


def test_a_template_is_rendered_once_for_a_conversation_not_for_each_word() -> None:
    process = ChatmlHere()
    certain = CertainTokens(made(process), N_CTX)
    text = ""
    for word in ("these", "are", "six", "words", "of", "text"):
        text += f"{word} "
        assert len(certain.of(expected(text)).tokens) > len(text)
    assert process.opened_for == 1
    certain.of(expected(text, system="Be brief."))
    assert process.opened_for == 2


class Counting(ByteTokenizer):
    """Notes the texts that it encodes."""

    def __init__(self) -> None:
        super().__init__("any")
        self.encoded: list[str] = []

    def encode(self, text: str, *, special: bool) -> list[int]:
        self.encoded.append(text)
        return super().encode(text, special=special)


def test_what_stands_before_a_text_is_encoded_once_not_for_each_word() -> None:
    tokenizer = Counting()
    certain = CertainTokens(ChatTemplate(tokenizer, cast("TemplateProcess", ChatmlHere())), N_CTX)
    certain.of(expected("one "))
    first = len(tokenizer.encoded)
    certain.of(expected("one two "))
    assert 0 < len(tokenizer.encoded) - first < first


def test_a_text_that_cannot_fit_is_not_encoded() -> None:
    tokenizer = Counting()
    certain = CertainTokens(ChatTemplate(tokenizer, cast("TemplateProcess", ChatmlHere())), 100)
    assert certain.of(expected("x" * 2000)) == BegunPrompt()
    assert tokenizer.encoded == []


def test_oldest_turns_are_left_out_as_they_will_be_of_the_prompt() -> None:
    template, n_ctx = made(), 600
    turns = [
        Message(role, f"{place} " * 30) for place in range(8) for role in ("user", "assistant")
    ]
    conversation = Conversation("", [*turns, Message("user", "one two ")])
    prompt, dropped = conversation.fit(template.prompt, n_ctx)
    found = CertainTokens(template, n_ctx).of(Expected(conversation, 0.0, True))
    assert dropped > 0
    assert prompt.tokens[: len(found.tokens)] == found.tokens
    assert len(found.tokens) > len(prompt.tokens) - 30


def test_of_a_message_that_does_not_fit_nothing_is_read() -> None:
    assert CertainTokens(made(), 100).of(expected("x" * 99)) == BegunPrompt()


class Twice(ChatmlHere):
    """Writes everything twice, so that no content has one place."""

    def render(self, variables: dict[str, Any], max_chars: int) -> dict[str, str]:
        return {"text": super().render(variables, max_chars)["text"] * 2}


class Silent(ChatmlHere):
    """Writes the same, whatever was said."""

    def render(self, variables: dict[str, Any], max_chars: int) -> dict[str, str]:
        del variables, max_chars
        return {"text": "always the same"}


@pytest.mark.parametrize("is_typing", [True, False])
def test_of_a_template_that_leaves_the_question_out_nothing_is_read(is_typing: bool) -> None:
    """Sending it tells why."""
    certain = CertainTokens(made(Silent()), N_CTX)
    assert certain.of(expected("one two ", is_typing=is_typing)) == BegunPrompt()


def test_with_a_template_without_a_place_for_the_text_nothing_is_certain_of_what_is_typed() -> None:
    """And no word costs a rendering."""
    process = Twice()
    certain = CertainTokens(made(process), N_CTX)
    assert certain.of(expected("one two ")) == BegunPrompt()
    assert certain.of(expected("one two three ")) == BegunPrompt()
    assert process.opened_for == 1


def test_a_message_that_is_sent_is_rendered_once_and_for_its_request_too() -> None:
    """However the template writes it."""
    process = Twice()
    template = made(process)
    sent = expected("one two ", is_typing=False)
    found = CertainTokens(template, N_CTX).of(sent)
    prompt, _ = sent.conversation.fit(template.urgent_prompt, N_CTX)
    assert found.tokens == prompt.tokens[:-1]
    assert process.opened_for == 1


def test_a_text_as_it_would_be_sent_is_the_prompt_of_its_request() -> None:
    process = ChatmlHere()
    template = made(process)
    certain = CertainTokens(template, N_CTX)
    typed = expected("one two thr", system="Be brief.")
    begun = certain.of(typed)
    found = certain.as_sent(typed)
    rendered = process.opened_for
    prompt, _ = typed.conversation.fit(template.urgent_prompt, N_CTX)
    assert process.opened_for == rendered
    assert found.tokens == prompt.tokens[:-1]
    assert found.tokens[: len(begun.tokens)] == begun.tokens
    assert len(found.tokens) > len(begun.tokens)
    assert found.messages == begun.messages
