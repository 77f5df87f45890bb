"""What Anthropic's messages ask for."""

import json
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from app.chat.reply_options import ReplyOptions
from app.engine.asking.answer import Request
from app.serve.anthropic.turns import InputMessage, TextBlock, conversation_of
from app.serve.asked_sampling import asked_sampling
from app.serve.dialect import AskedReply
from app.serve.limits import MOST_STOP_CHARACTERS, MOST_STOPS
from app.serve.refusal import invalid
from app.serve.request_body import Fields, Items, Lenient
from app.serve.tools.offered_tools import OfferedTools, offered_tools
from app.settings.answering import Answering
from backends.chat.message import Tool
from decoding.constraint.grammar import Grammar, GrammarKind

_Stop = Annotated[str, Field(min_length=1, max_length=MOST_STOP_CHARACTERS)]

_UNBOUNDED = 1 << 31
"""Tokens of a reply that only the context bounds."""


class InputTool(Lenient):
    """A tool that the program runs itself; those of Anthropic's servers have another type."""

    type: Literal["custom"] | None = None
    name: str
    description: str = ""
    input_schema: dict[str, object]


class ToolChoice(Lenient):
    """Whether a tool must be called."""

    type: Literal["auto", "any", "tool", "none"] = "auto"
    name: str = ""
    disable_parallel_tool_use: bool = False


class OutputFormat(Fields):
    """The schema that the reply must match."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, object], Field(alias="schema")]


class OutputConfig(Lenient):
    """The form of the reply; how much effort it takes is the model's."""

    format: OutputFormat | None = None


class CountRequest(Fields):
    """The body of a request to count tokens, and what a request for a reply has as well."""

    model: Annotated[str, Field(max_length=1024)] = ""
    messages: Annotated[Items[InputMessage], Field(min_length=1)]
    system: str | Items[TextBlock] = ""
    tools: Items[InputTool] = Field(default_factory=list[InputTool])
    tool_choice: ToolChoice = ToolChoice()
    output_config: OutputConfig = OutputConfig()
    output_format: OutputFormat | None = None
    """Where the beta of structured outputs had it."""

    thinking: object = None
    cache_control: object = None
    context_management: object = None
    inference_geo: object = None
    speed: object = None
    diagnostics: object = None
    user_profile_id: object = None

    @property
    def offered(self) -> OfferedTools:
        """The tools of this request.

        Raises:
            RefusedError: one is unusable.
        """
        tools = [
            Tool(tool.name, tool.description, json.dumps(tool.input_schema, ensure_ascii=False))
            for tool in self.tools
        ]
        kind = {"any": "required", "tool": "named"}.get(self.tool_choice.type)
        is_parallel = not self.tool_choice.disable_parallel_tool_use
        choice = kind or self.tool_choice.type
        return offered_tools(tools, choice, self.tool_choice.name, is_parallel=is_parallel)

    def request(self, answering: Answering, stops: tuple[str, ...] = ()) -> Request:
        """The prompt of this request, and what its reply must look like.

        Raises:
            RefusedError: values are out of range, or contradict each other.
        """
        conversation, begun = conversation_of(self.system, self.messages), ""
        last = conversation.turns[-1] if conversation.turns else None
        if last is not None and last.role == "assistant" and not last.calls:
            begun = conversation.turns.pop().content
        if not conversation.turns:
            raise invalid("messages: there is nothing to answer", "messages")
        offered = self.offered
        return Request(
            conversation,
            answering.for_an_answer(),
            _UNBOUNDED,
            partial=begun,
            options=offered.options(ReplyOptions(stops, self._grammar)),
            tools=offered.tools,
            may_drop=False,
        )

    @property
    def _grammar(self) -> Grammar | None:
        form = self.output_config.format or self.output_format
        return None if form is None else Grammar(GrammarKind.JSON_SCHEMA, json.dumps(form.schema_))


class MessagesRequest(CountRequest):
    """The body of a request to /v1/messages."""

    max_tokens: Annotated[int, Field(ge=1, le=1 << 31)]
    stream: bool = False
    stop_sequences: Annotated[Items[_Stop], Field(max_length=MOST_STOPS)] = Field(
        default_factory=list[str]
    )
    temperature: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=0, le=1 << 31)] | None = None

    metadata: object = None
    service_tier: object = None

    def asked(self, defaults: Answering) -> AskedReply:
        """The request, and how its reply is split.

        Raises:
            RefusedError: values are out of range, or contradict each other.
        """
        plain = self.request(defaults, tuple(self.stop_sequences))
        settings = asked_sampling(
            defaults, temperature=self.temperature, top_p=self.top_p, top_k=self.top_k
        )
        request = replace(plain, settings=settings, max_tokens=self.max_tokens)
        splitter = partial(self.offered.splitter, is_begun=bool(plain.partial))
        return AskedReply((request,), self.stream, splitter=splitter)
