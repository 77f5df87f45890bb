"""Rendering a conversation into a prompt with the chat template the model ships."""

import re
import time
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from math import inf

from backends.base import Tokenizer, UsageError
from backends.chat.template_process import TemplateProcess
from backends.chat.whole_characters import whole_characters

_MARKS = range(0xE000, 0xF900)
"""Private-use characters, of which an unused one, with a number, replaces a control text."""

_LONGEST_NUMBER = 9

_KEPT_PROMPTS = 8
"""As many as are rendered to find the turns that fit a context, more or less."""

_KEPT_SECONDS = 60.0
"""Time for which a prompt is kept: templates may write the date or the time. A guess; not
measured."""

_PROBE = "\t"
"""White space that shows whether a template trims contents: none writes it around them itself."""

PLAIN_STOPS = ("\nUser:", "\nSystem:")
"""Texts that end a reply in the plain form, which has no control tokens."""


@dataclass(frozen=True, slots=True)
class Message:
    """Turn of a conversation; role is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens for the model, with the texts that end its reply."""

    tokens: list[int]
    stops: tuple[str, ...] = ()
    note: str = ""
    """Why the model's own template was not used, "" if it was."""


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """A prompt around the content of its last message, for a content that changes as it is typed.

    before, after: the prompt's text around the content. is_trimmed: whether the template drops
    white space at its ends.
    """

    before: str
    after: str
    is_trimmed: bool
    _marks: "_Marks"
    _encode: Callable[[str, "_Marks"], list[int]]

    def whole(self, content: str) -> list[int]:
        """Tokens of the prompt with this content."""
        return self._tokens(content, self.after)

    def beginning(self, content: str) -> list[int]:
        """Tokens of the prompt up to the end of this content."""
        return self._tokens(content, "")

    def _tokens(self, content: str, after: str) -> list[int]:
        marks = self._marks.copy()
        content = marks.hide(whole_characters(content))
        content = content.strip() if self.is_trimmed else content
        return self._encode(f"{self.before}{content}{after}", marks)


class ChatTemplate:
    """Chat template of a model, rendered in a child process; a plain form if that fails."""

    def __init__(self, tokenizer: Tokenizer, process: TemplateProcess) -> None:
        self._tokenizer = tokenizer
        self._process = process
        self._source = tokenizer.chat_template
        self._prompts: dict[tuple[Message, ...], tuple[float, Prompt]] = {}
        """Urgent prompts, and when they were rendered."""

    def get_ready(self) -> None:
        """Prepare for the next prompt; to be called some time after an urgent one."""
        self._process.get_ready()

    def urgent_prompt(self, messages: Sequence[Message]) -> Prompt:
        """The prompt of messages, for a reply that somebody waits for.

        It is kept, so that it can be rendered before it is asked for.
        """
        key, now = tuple(messages), time.monotonic()
        rendered_at, prompt = self._prompts.get(key, (-inf, None))
        if prompt is None or now - rendered_at > _KEPT_SECONDS:
            prompt = self._rendered(messages, starts_next=False)
            self._keep(key, now, prompt)
        return prompt

    def _keep(self, key: tuple[Message, ...], now: float, prompt: Prompt) -> None:
        """Keep a prompt, unless the template failed: it may not do so again."""
        self._prompts.pop(key, None)
        while len(self._prompts) >= _KEPT_PROMPTS:
            del self._prompts[next(iter(self._prompts))]
        if not prompt.note:
            self._prompts[key] = now, prompt

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Tokens of a conversation up to the start of the assistant's reply."""
        return self._rendered(messages, starts_next=True)

    def _rendered(self, messages: Sequence[Message], *, starts_next: bool) -> Prompt:
        whole = [Message(message.role, whole_characters(message.content)) for message in messages]
        marks = _Marks(self._tokenizer.special_texts, [self._source or "", *_contents(whole)])
        guarded = [Message(message.role, marks.hide(message.content)) for message in whole]
        text, note = self._render(guarded, starts_next=starts_next)
        stops = PLAIN_STOPS if text is None else ()
        text = plain_form(guarded) if text is None else text
        return Prompt(self._encode(text, marks), stops, note)

    def frame(self, messages: Sequence[Message]) -> PromptFrame | None:
        """The prompt around the content of a user's message after these.

        None if the template writes that content otherwise than once and as it is.
        """
        whole = [Message(message.role, whole_characters(message.content)) for message in messages]
        known = [*self._tokenizer.special_texts, self._source or "", *_contents(whole)]
        marks = _Marks(self._tokenizer.special_texts, known)
        hole = _unused((*known, marks.mark))
        guarded = [Message(message.role, marks.hide(message.content)) for message in whole]
        guarded.append(Message("user", f"{_PROBE}{hole}{_PROBE}"))
        text, _ = self._render(guarded)
        before, *others = (plain_form(guarded) if text is None else text).split(hole)
        if len(others) != 1:
            return None
        is_trimmed = not before.endswith(_PROBE)
        before, after = before.removesuffix(_PROBE), others[0].removeprefix(_PROBE)
        return PromptFrame(before, after, is_trimmed, marks, self._encode)

    def raw(self, text: str) -> Prompt:
        """Tokens of a text, without the template.

        Raises:
            UsageError: it is empty.
        """
        tokenizer = self._tokenizer
        tokens = with_bos(tokenizer.encode(text, special=True), tokenizer)
        if not tokens:
            raise UsageError("there is nothing to continue", "the prompt is empty")
        return Prompt(tokens)

    def _render(
        self, messages: Sequence[Message], *, starts_next: bool = True
    ) -> tuple[str | None, str]:
        if self._source is None:
            return None, "the model ships no chat template: a plain form is used"
        answer = self._run(self._source, messages, starts_next=starts_next)
        refused = answer.get("error", "").startswith("TemplateError")
        if refused and messages and messages[0].role == "system":
            # Some templates accept no system message: it is prepended to the first user message.
            answer = self._run(self._source, _without_system(messages), starts_next=starts_next)
        text = answer.get("text")
        if text is not None and text == whole_characters(text):
            return text, ""
        why = answer.get("error", "it wrote an unpaired surrogate")
        return None, f"the model's chat template failed ({why}): a plain form is used"

    def _run(
        self, source: str, messages: Sequence[Message], *, starts_next: bool
    ) -> dict[str, str]:
        variables = {
            "messages": [{"role": turn.role, "content": turn.content} for turn in messages],
            "add_generation_prompt": True,
            "bos_token": self._text_of(self._tokenizer.bos),
            "eos_token": self._text_of(self._tokenizer.eos),
        }
        max_chars = 4 * sum(len(turn.content) for turn in messages) + (1 << 16)
        return self._process.render(source, variables, max_chars, starts_next=starts_next)

    def _text_of(self, token: int | None) -> str:
        return "" if token is None else self._tokenizer.entry(token).decode(errors="replace")

    def _encode(self, text: str, marks: "_Marks") -> list[int]:
        tokenizer = self._tokenizer
        tokens: list[int] = []
        for part, special in marks.split(text):
            tokens += tokenizer.encode(part, special=special)
        return with_bos(tokens, tokenizer)


def with_bos(tokens: list[int], tokenizer: Tokenizer) -> list[int]:
    """Tokens with the model's beginning-of-text token before them, once."""
    if tokenizer.bos is None or tokens[:1] == [tokenizer.bos]:
        return tokens
    return [tokenizer.bos, *tokens]


def plain_form(messages: Sequence[Message]) -> str:
    """Text of a conversation for a model without a template."""
    turns = [f"{message.role.capitalize()}: {message.content}" for message in messages]
    return "\n\n".join([*turns, "Assistant:"])


def _without_system(messages: Sequence[Message]) -> list[Message]:
    system, *rest = messages
    if rest and rest[0].role == "user":
        return [Message("user", f"{system.content}\n\n{rest[0].content}"), *rest[1:]]
    return [Message("user", system.content), *rest]


def _contents(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages]


def _unused(texts: Sequence[str]) -> str:
    """Private-use character that is in none of the texts."""
    marks = map(chr, _MARKS)
    return next((mark for mark in marks if not any(mark in text for text in texts)), chr(_MARKS[0]))


class _Marks:
    """Keeps control texts in user text from becoming control tokens.

    known: texts in which the mark must not occur.
    """

    def __init__(self, special_texts: Sequence[str], known: Sequence[str]) -> None:
        self._special_texts = sorted(filter(None, special_texts), key=len, reverse=True)
        self.hidden: list[str] = []
        self.mark = _unused((*known, *special_texts))
        number = rf"([0-9]{{1,{_LONGEST_NUMBER}}})"
        self._shown_mark = re.compile(f"{self.mark}{number}{self.mark}")

    def copy(self) -> "_Marks":
        """Marks of the same texts, to which more can be added."""
        marks = copy(self)
        marks.hidden = list(self.hidden)
        return marks

    def hide(self, content: str) -> str:
        for text in self._special_texts:
            if text in content:
                content = content.replace(text, f"{self.mark}{len(self.hidden)}{self.mark}")
                self.hidden.append(text)
        return content

    def split(self, text: str) -> list[tuple[str, bool]]:
        """Pieces of text, each with whether control texts in it are control tokens."""
        if not self.hidden:
            return [(text, True)]
        return [
            (piece, True) if index % 2 == 0 else (self._shown(piece), False)
            for index, piece in enumerate(self._shown_mark.split(text))
            if piece
        ]

    def _shown(self, number: str) -> str:
        """Text behind a mark; a template may write marks of its own."""
        return self.hidden[int(number)] if int(number) < len(self.hidden) else number
