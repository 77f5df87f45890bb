"""What OpenAI's responses ask for."""

import json
from typing import Annotated, Literal

from pydantic import Field

from app.chat.reply_options import ReplyOptions
from app.engine.asking.answer import Request
from app.serve.asked_sampling import asked_sampling
from app.serve.dialect import AskedReply
from app.serve.refusal import invalid
from app.serve.request_body import Fields, Items, Lenient
from app.serve.responses.items import Item, conversation_of
from app.serve.tools.offered_tools import OfferedTools, offered_tools
from app.settings.answering import Answering
from backends.chat.message import Tool
from decoding.constraint.grammar import Grammar, GrammarKind


class InputTool(Lenient):
    """A tool; only functions can be called here, and others are left out."""

    type: Annotated[str, Field(max_length=64)]
    name: str = ""
    description: str = ""
    parameters: dict[str, object] = Field(default_factory=dict[str, object])


class NamedTool(Fields):
    """The function that must be called."""

    type: Literal["function"]
    name: str


class Format(Fields):
    """The form of the text: any, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    schema_: Annotated[dict[str, object], Field(alias="schema")] = Field(
        default_factory=dict[str, object]
    )

    name: object = None
    description: object = None
    strict: object = None

    @property
    def sent(self) -> dict[str, object]:
        """The form as it was sent."""
        return {"type": self.type, **self.model_dump(by_alias=True, exclude_unset=True)}

    @property
    def grammar(self) -> Grammar | None:
        """The grammar of the reply, None if it may be any text."""
        if self.type == "json_schema":
            return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(self.schema_))
        return Grammar(GrammarKind.JSON_OBJECT) if self.type == "json_object" else None


class TextConfig(Lenient):
    """The form of the text; how long it should be is the model's."""

    format: Format = Format()


class ResponsesRequest(Fields):
    """The body of a request to /v1/responses; nothing of it is stored."""

    model: Annotated[str, Field(max_length=1024)] = ""
    input: str | Items[Item]
    instructions: str = ""
    max_output_tokens: Annotated[int, Field(ge=1, le=1 << 31)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    stream: bool = False
    tools: Items[InputTool] = Field(default_factory=list[InputTool])
    tool_choice: Literal["auto", "none", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    text: TextConfig = TextConfig()
    truncation: Literal["auto", "disabled"] = "disabled"
    background: Literal[False] = False
    top_logprobs: Literal[0] = 0

    include: object = None
    max_tool_calls: object = None
    metadata: object = None
    prompt_cache_key: object = None
    prompt_cache_options: object = None
    prompt_cache_retention: object = None
    reasoning: object = None
    safety_identifier: object = None
    service_tier: object = None
    store: object = None
    stream_options: object = None
    client_metadata: object = None
    user: object = None

    @property
    def offered(self) -> OfferedTools:
        """The functions of this request.

        Raises:
            RefusedError: one is unusable.
        """
        tools = [
            Tool(tool.name, tool.description, json.dumps(tool.parameters, ensure_ascii=False))
            for tool in self.tools
            if tool.type == "function"
        ]
        choice = self.tool_choice
        kind, name = (choice, "") if isinstance(choice, str) else ("named", choice.name)
        return offered_tools(tools, kind, name, is_parallel=self.parallel_tool_calls)

    def asked(self, defaults: Answering) -> AskedReply:
        """The request, and how its reply is split.

        Raises:
            RefusedError: values are out of range, or contradict each other.
        """
        conversation = conversation_of(self.instructions, self.input)
        if not conversation.turns:
            raise invalid("input: there is nothing to answer", "input")
        offered = self.offered
        request = Request(
            conversation,
            asked_sampling(defaults, temperature=self.temperature, top_p=self.top_p),
            self.max_output_tokens or 1 << 31,
            options=offered.options(ReplyOptions(grammar=self.text.format.grammar)),
            tools=offered.tools,
            may_drop=self.truncation == "auto",
        )
        return AskedReply(
            (request,),
            self.stream,
            splitter=offered.splitter,
            prompt_field="input",
            form_field="tools" if offered.is_required else "text.format",
        )
