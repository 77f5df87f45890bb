"""Rendering a conversation into a prompt with the chat template the model ships."""

import json
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf

from backends.base import Tokenizer, UsageError
from backends.chat.message import (
    ControlMarks,
    Message,
    Tool,
    adds_space,
    changed_message,
    changed_tool,
    following_tokens,
    texts_of,
    unused_mark,
    whole_characters,
)
from backends.chat.reply_form import (
    CLOSE,
    OF_THINKING,
    OPEN,
    PLAIN,
    TEMPLATE_REFUSES,
    THINK_AUTO,
    THINK_OFF,
    THINKING,
    Form,
    ReplyForm,
    ToolForm,
    accepted_form,
    has_channels,
    in_channels,
    opened_thinking,
    own_marks,
    split,
    thinking_variables,
)
from backends.chat.template_process import TemplateProcess
from backends.chat.tools import (
    ToolSupport,
    describe_tools,
    message_variables,
    probe_tool_support,
    tool_variables,
)

_KEPT_PROMPTS = 8
"""As many as are rendered to find the turns that fit a context, more or less."""

_KEPT_SECONDS = 60.0
"""Time for which a prompt is kept: templates may write the date or the time. A guess; not
measured."""

_PROBE = "\t"
"""White space that shows whether a template trims contents: none writes it around them itself."""

_SWITCHES = ("/no_think", "/think")
"""What some templates take out of contents, as they read it as an option."""

_LEAVES_OUT = "the model's chat template leaves {} of the messages out"

PLAIN_STOPS = ("\nUser:", "\nSystem:")
"""Texts that end a reply in the plain form, which has no control tokens."""


@dataclass(frozen=True, slots=True)
class Prompt:
    tokens: list[int]
    stops: tuple[str, ...] = ()
    note: str = ""
    """Why the model's own template was not used, "" if it was."""
    form: ReplyForm = PLAIN
    """What the reply may be made of."""
    begun: int = 0
    """Number of tokens at its end that begin the reply, of one that is continued."""
    is_conversation: bool = True
    """Whether a model's template, or the plain form, puts questions and asks for an answer."""


@dataclass(frozen=True, slots=True)
class PromptFrame:
    """A prompt around the content of its last message, for a content that changes as it is typed.

    before, after: the prompt's text around the content. is_trimmed: whether the template drops
    white space at its ends.
    """

    before: str
    after: str
    is_trimmed: bool
    _marks: ControlMarks
    _encode: Callable[[str, ControlMarks], list[int]]

    def whole(self, content: str) -> list[int]:
        return self._tokens(content, self.after)

    def beginning(self, content: str) -> list[int]:
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
        self._prompts: dict[tuple[object, ...], tuple[float, Prompt]] = {}
        """Urgent prompts, and when they were rendered."""
        self._starts_next = True
        """Whether rendering also prepares for the next prompt."""
        self._think = THINK_AUTO
        self._others: dict[str, ChatTemplate] = {}
        """The same template with other efforts."""

    def thinking(self, think: str) -> "ChatTemplate":
        """The template where the model thinks as asked; one of EFFORTS."""
        if think == self._think:
            return self
        if think not in self._others:
            other = self._others[think] = ChatTemplate(self._tokenizer, self._process)
            other._think = think
        return self._others[think]

    def get_ready(self) -> None:
        """Prepare for the next prompt; to be called some time after an urgent one."""
        self._process.get_ready()

    def urgent_prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Prompt:
        """The prompt of messages, for a reply that somebody waits for.

        It is kept, so that it can be rendered before it is asked for.
        """
        key, now = (*messages, *tools), time.monotonic()
        rendered_at, prompt = self._prompts.get(key, (-inf, None))
        if prompt is None or now - rendered_at > _KEPT_SECONDS:
            self._starts_next = False
            try:
                prompt = self.prompt(messages, tools)
            finally:
                self._starts_next = True
            self._keep(key, now, prompt)
        return prompt

    def _keep(self, key: tuple[object, ...], now: float, prompt: Prompt) -> None:
        """Keep a prompt, unless the template failed: it may not do so again."""
        self._prompts.pop(key, None)
        while len(self._prompts) >= _KEPT_PROMPTS:
            del self._prompts[next(iter(self._prompts))]
        if not prompt.note:
            self._prompts[key] = now, prompt

    def prompt(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> Prompt:
        """Tokens of a conversation up to the start of the assistant's reply.

        tools: those that the model may call, told by its template, or in words where it knows none.

        Raises:
            UsageError: the template refuses the conversation, or leaves the question out.
        """
        whole, offered = self._said(messages, tools)
        marks = ControlMarks(self._hidden_texts, [self._source or "", *texts_of(whole, offered)])
        text, prompt = self._written(whole, offered, marks)
        return replace(prompt, tokens=self._encode(text, marks))

    def _said(
        self, messages: Sequence[Message], tools: Sequence[Tool]
    ) -> tuple[list[Message], list[Tool]]:
        whole = [changed_message(message, whole_characters) for message in messages]
        parted = [self._parted(turn) if turn.role == "assistant" else turn for turn in whole]
        return parted, [changed_tool(tool, whole_characters) for tool in tools]

    def _parted(self, turn: Message) -> Message:
        """An assistant's turn with its thinking apart, if it is some."""
        parts = split(turn.content)
        is_opened = turn.content.lstrip().startswith(tuple(THINKING))
        if not (is_opened or (parts.thinking and CLOSE in (self._source or ""))):
            return turn  # the end alone is thinking where the template opens it
        return replace(turn, content=parts.answer, thinking=parts.thinking)

    @property
    def _hidden_texts(self) -> tuple[str, ...]:
        """What is no mark in contents, neither of the tokenizer's nor of thinking."""
        return (*self._tokenizer.special_texts, *OF_THINKING)

    def _form(self, text: str, tools: ToolForm | None = None) -> ReplyForm:
        is_split = has_channels(text, self._source or "")
        opened = opened_thinking(text)
        is_mark = opened in self._tokenizer.special_texts  # which replies are spelled without
        return ReplyForm(tools, OPEN if is_mark else opened, is_split)

    def _written(
        self, messages: Sequence[Message], tools: Sequence[Tool], marks: ControlMarks
    ) -> tuple[str, Prompt]:
        """The text of a prompt, with marks in it, and the prompt without its tokens."""
        guarded = [changed_message(message, marks.hide) for message in messages]
        tools = [changed_tool(tool, marks.hide) for tool in tools]
        has_tools = bool(tools) or any(turn.calls or turn.answers for turn in guarded)
        support = self._tool_support if has_tools else None
        for turns in (guarded, _one_call_a_turn(guarded)) if support else ():
            text = self._whole(turns, tools, support)
            if text is not None and support is not None:
                return text, Prompt([], form=self._form(text, support.form if tools else None))
        guarded = describe_tools(guarded, tools) if has_tools else guarded
        text, note = self._render(guarded)
        stops = PLAIN_STOPS if text is None else ()
        text = plain_form(guarded) if text is None else text
        return text, Prompt([], stops, note, self._form(text, ToolForm.GENERIC if tools else None))

    @cached_property
    def _tool_support(self) -> ToolSupport | None:
        return probe_tool_support(self._source or "", self._whole)

    def _whole(
        self, messages: Sequence[Message], tools: Sequence[Tool], support: ToolSupport | None
    ) -> str | None:
        """The template's text of a conversation, None if it loses anything of it."""
        try:
            text, note = self._render(messages, tools, support)
        except UsageError:
            return None
        return None if note else text

    def frame(self, messages: Sequence[Message], tools: Sequence[Tool] = ()) -> PromptFrame | None:
        """The prompt around the content of a user's message after these.

        None if the template writes that content otherwise than once and as it is.
        """
        whole, offered = self._said(messages, tools)
        known = [*self._hidden_texts, self._source or "", *texts_of(whole, offered)]
        marks = ControlMarks(self._hidden_texts, known)
        hole = unused_mark((*known, marks.mark))
        whole.append(Message("user", f"{_PROBE}{hole}{_PROBE}"))
        try:
            text, _ = self._written(whole, offered, marks)
        except UsageError:
            return None
        before, *others = text.split(hole)
        is_trimmed = not before.endswith(_PROBE)
        if len(others) != 1 or is_trimmed == others[0].startswith(_PROBE):
            return None
        before, after = before.removesuffix(_PROBE), others[0].removeprefix(_PROBE)
        return PromptFrame(before, after, is_trimmed, marks, self._encode)

    def spoken(self, text: str, form: ReplyForm) -> list[int]:
        """Tokens of the beginning of an answer, without those before every prompt."""
        marks, text = ControlMarks(self._hidden_texts, [text]), whole_characters(text)
        if form.channels:
            return self._encode_parts(in_channels(text, marks), marks)
        own = own_marks(self._tokenizer.special_texts, self._source or "")
        opening, closing = "", ""
        is_opened = text.lstrip().startswith(OPEN)
        if is_opened:
            opening, text = own[0], text.lstrip().removeprefix(OPEN)
        if is_opened or form.thinking:
            text, closing, rest = text.partition(CLOSE)
            closing = f"{own[1]}{marks.hide(rest)}" if closing else ""
        return self._encode_parts(f"{opening}{marks.hide(text)}{closing}", marks)

    def raw(self, text: str) -> Prompt:
        """Tokens of a text, without the template. Raises UsageError: it is empty."""
        tokenizer = self._tokenizer
        tokens = with_bos(tokenizer.encode(whole_characters(text), special=True), tokenizer)
        if not tokens:
            raise UsageError("there is nothing to continue", "the prompt is empty")
        return Prompt(tokens, is_conversation=False)

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        support: ToolSupport | None = None,
    ) -> tuple[str | None, str]:
        """The template's text of a conversation, None if it fails, and a note where it matters."""
        if self._source is None:
            return None, "the model ships no chat template: a plain form is used"
        with self._process.opened(self._source, starts_next=self._starts_next) as render:

            def rendered(turns: Sequence[Message], in_parts: Set[str]) -> dict[str, str]:
                return render(*self._variables(turns, tools, support, in_parts))

            form = accepted_form(messages, rendered)
            if isinstance(form, Form):
                answer = rendered(form.change(messages), form.in_parts)
            else:
                answer = {"error": form}
        text, why = answer.get("text"), answer.get("error", "it wrote an unpaired surrogate")
        if not why or (text is not None and not _has_question(text, messages)):
            raise UsageError(
                "the question cannot be asked",
                "the model's chat template leaves it out of the prompt",
                "Use another file of this model, or another model.",
            )
        if why.startswith(TEMPLATE_REFUSES):
            why = why.removeprefix(TEMPLATE_REFUSES)
            raise UsageError("the model's chat template refuses this conversation", why)
        if text is None or text != whole_characters(text):
            return None, f"the model's chat template failed ({why}): a plain form is used"
        if self._think == THINK_OFF and (opened := opened_thinking(text)):
            text = f"{text}\n{THINKING[opened]}\n\n"  # as templates write it that have a switch
        left_out = form.left_out if isinstance(form, Form) else 0
        return text, _LEAVES_OUT.format(left_out) if left_out else ""

    def _variables(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        support: ToolSupport | None,
        in_parts: Set[str],
    ) -> tuple[dict[str, object], int]:
        as_text = support is not None and support.arguments_as_text
        turns = message_variables(messages, arguments_as_text=as_text, in_parts=in_parts)
        eos = self._tokenizer.eos
        variables: dict[str, object] = {
            "messages": turns,
            "add_generation_prompt": True,
            "bos_token": self._tokenizer.bos_text,
            "eos_token": "" if eos is None else self._tokenizer.entry(eos).decode(errors="replace"),
            **thinking_variables(self._think, self._source or ""),
        }
        if tools:
            variables["tools"] = tool_variables(tools)
        written = [turns, variables.get("tools")]
        return variables, 4 * len(json.dumps(written, ensure_ascii=False)) + (1 << 16)

    def _encode(self, text: str, marks: ControlMarks) -> list[int]:
        return with_bos(self._encode_parts(text, marks), self._tokenizer)

    def _encode_parts(self, text: str, marks: ControlMarks) -> list[int]:
        tokens: list[int] = []
        is_text_before = False
        for part, special in marks.split(text):
            if not isinstance(part, str):
                tokens += self._tokenizer.image_tokens(part)
                is_text_before = False
                continue
            encode = partial(self._tokenizer.encode, special=special)
            has_space = is_text_before and self._has_space
            tokens += following_tokens(encode, part, has_space=has_space)
            is_text_before = not special or not part.endswith(self._tokenizer.special_texts)
        return tokens

    @cached_property
    def _has_space(self) -> bool:
        return adds_space(partial(self._tokenizer.encode, special=False), self._tokenizer.piece)


def _has_question(text: str, messages: Sequence[Message]) -> bool:
    """Whether a prompt has the user's last words: as they are, as JSON, or without switches."""
    question = next((turn.content for turn in messages[::-1] if turn.role == "user"), "").strip()
    switched = question
    for switch in _SWITCHES:
        switched = switched.replace(switch, "").strip()
    as_json = json.dumps(question, ensure_ascii=False)[1:-1]
    return any(form in text for form in (question, as_json, switched))


def with_bos(tokens: list[int], tokenizer: Tokenizer) -> list[int]:
    """Tokens with the model's beginning-of-text token before them, once."""
    if tokenizer.bos is None or tokens[:1] == [tokenizer.bos]:
        return tokens
    return [tokenizer.bos, *tokens]


def plain_form(messages: Sequence[Message]) -> str:
    turns = [f"{message.role.capitalize()}: {message.content}" for message in messages]
    return "\n\n".join([*turns, "Assistant:"])


def _one_call_a_turn(messages: Sequence[Message]) -> list[Message]:
    """Messages for templates that write one call a turn: each is followed by its result."""
    results = {turn.answers: turn for turn in messages if turn.answers}
    moved = {call.id for turn in messages if len(turn.calls) > 1 for call in turn.calls}
    written: list[Message] = []
    for turn in messages:
        if len(turn.calls) < 2:
            written += [] if turn.answers in moved else [turn]
            continue
        for index, call in enumerate(turn.calls):
            written.append(Message(turn.role, "" if index else turn.content, (call,)))
            written += [results[call.id]] if call.id in results else []
    return written
