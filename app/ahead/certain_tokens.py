"""Which tokens the next prompt surely begins with, while its last message is still typed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from app.ahead.expected import Expected
from app.chat.conversation import Conversation
from backends.base import UsageError
from backends.chat.chat_template import ChatTemplate, Prompt, PromptFrame
from backends.chat.message import Message, Tool
from decoding.prefill import common_prefix

_FOLLOWING = (" a", "\n\n1")
_BEGINNINGS = ("a", "1")
"""What may follow finished words, and what a message may begin with: what prompts with either of
them share does not depend on what is typed next."""

_LONGEST_WORD = 24
_UNFINISHED = 8
"""Characters of a word: a longer one is an address, or text of a script without spaces, of which
the last few characters may still change. Guesses; not measured."""

_TOKEN_CHARACTERS = 16
"""Characters of a token, at most, as long texts have them on average: one that is longer than a
context of such tokens does not fit. A guess; not measured."""

_MOST_FRAMES = 16
"""Frames kept: as many as may be needed to find the turns that fit the context."""


@dataclass(frozen=True, slots=True)
class BegunPrompt:
    """The beginning of the next prompt.

    tokens: those that are certain. untyped: as many of them do not depend on what is still typed.
    total: tokens of the prompt if it were sent now, more or less. has_text: whether anything is
    typed. messages: those before it, by which another conversation is known.
    """

    tokens: Sequence[int] = ()
    untyped: int = 0
    total: int = 0
    has_text: bool = False
    messages: Sequence[Message] = ()


class CertainTokens:
    """Finds the certain tokens of prompts by a model's template, for a context of n_ctx tokens.

    A template is rendered once for each conversation, not for each word that is typed.
    """

    def __init__(self, template: ChatTemplate, n_ctx: int) -> None:
        self._any = self._template = template
        """With any effort of thinking, and with the latest one."""
        self._tools: tuple[Tool, ...] = ()
        self._n_ctx = n_ctx
        self._frames: dict[tuple[Message, ...], PromptFrame | None] = {}
        self._opening: tuple[PromptFrame | None, Sequence[int]] = None, ()
        """The latest frame, and the tokens before what is typed in it."""
        self._last: tuple[object, BegunPrompt] = None, BegunPrompt()
        """The latest prompt, and what it was found for."""

    def of(self, expected: Expected) -> BegunPrompt:
        """The beginning of the prompt that is expected; nothing of one that cannot be made."""
        whole = expected.conversation
        turns = list(whole.turns)
        text = turns.pop().content if turns and turns[-1].role == "user" else ""
        words = finished_words(text) if expected.is_typing else None
        said = text if words is None else words
        key = (whole.system, turns, whole.think, said, bool(text), words is None, expected.tools)
        template, tools = self._any.thinking(whole.think), expected.tools
        if template is not self._template or tools != self._tools:
            self._template, self._tools, self._frames = template, tools, {}
        if expected.is_typing:
            self._template.get_ready()
        if key != self._last[0]:
            before = replace(whole, turns=turns)
            is_whole = bool(text) and words is None
            found = self.as_sent(expected) if is_whole else self._found(before, text, words or "")
            self._last = key, found
        return self._last[1]

    def as_sent(self, expected: Expected) -> BegunPrompt:
        """The prompt if the message that is expected were sent as it now stands.

        It is rendered by the template, and kept there for the request. Nothing of one that
        cannot be made. The last token is left to the reply, which needs its logits.
        """
        conversation = expected.conversation
        if self._is_too_long(conversation.turns[-1].content):
            return BegunPrompt()
        try:
            template = self._any.thinking(conversation.think)
            rendered = partial(template.urgent_prompt, tools=expected.tools)
            prompt, dropped = conversation.fit(rendered, self._n_ctx)
        except UsageError:
            return BegunPrompt()
        messages = tuple(conversation.messages(dropped)[:-1])
        tokens = prompt.tokens[:-1]
        return BegunPrompt(tokens, len(tokens), len(prompt.tokens), True, messages)

    def _is_too_long(self, text: str) -> bool:
        return len(text) > _TOKEN_CHARACTERS * self._n_ctx

    def _found(self, before: Conversation, text: str, words: str) -> BegunPrompt:
        """The beginning of a prompt; words: those of the text that are finished."""
        # Without a frame, each word would cost a template's rendering for nothing.
        if self._is_too_long(text) or self._frame(tuple(before.messages())) is None:
            return BegunPrompt()
        message = Message("user", text or _BEGINNINGS[0])
        whole = replace(before, turns=[*before.turns, message])
        try:
            prompt, dropped = whole.fit(self._prompt, self._n_ctx)
        except UsageError:
            return BegunPrompt()
        messages = tuple(whole.messages(dropped)[:-1])
        frame = self._frame(messages)
        if frame is None:
            return BegunPrompt()
        untyped = self._untyped(frame)
        if not text:
            return BegunPrompt(untyped, len(untyped), len(untyped), messages=messages)
        tokens = certain(frame, words)
        untyped_length = min(len(untyped), len(tokens))
        return BegunPrompt(tokens, untyped_length, len(prompt.tokens), True, messages)

    def _untyped(self, frame: PromptFrame) -> Sequence[int]:
        """Tokens that are certain before anything is typed, found once for each frame."""
        if self._opening[0] is not frame:
            self._opening = frame, certain(frame, "")
        return self._opening[1]

    def _prompt(self, messages: Sequence[Message]) -> Prompt:
        frame = self._frame(tuple(messages[:-1]))
        if frame is None:
            return self._template.prompt(messages, self._tools)
        return Prompt(frame.whole(messages[-1].content))

    def _frame(self, messages: tuple[Message, ...]) -> PromptFrame | None:
        if messages not in self._frames:
            while len(self._frames) >= _MOST_FRAMES:
                del self._frames[next(iter(self._frames))]
            self._frames[messages] = self._template.frame(messages, self._tools)
        return self._frames[messages]


def finished_words(text: str) -> str:
    """A text up to its last word, which may still change; all of it if white space follows."""
    if text[-1:].isspace():
        return text.rstrip()
    last = text.rsplit(maxsplit=1)[-1] if text else ""
    unfinished = _UNFINISHED if len(last) > _LONGEST_WORD else len(last)
    return text[: len(text) - unfinished].rstrip()


def certain(frame: PromptFrame, words: str) -> list[int]:
    """Tokens of a prompt that do not depend on what follows these words."""
    endings = _FOLLOWING if words else _BEGINNINGS
    some, others = (frame.beginning(words + ending) for ending in endings)
    return some[: common_prefix(some, others)]
