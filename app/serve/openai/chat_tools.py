"""Tools in OpenAI's chat."""

import json
from typing import Annotated, Literal

from pydantic import Field

from app.serve.request_body import Fields, Lenient
from app.serve.tools.offered_tools import OfferedTools, offered_tools
from backends.chat.message import Tool


class FunctionTool(Lenient):
    """A function by its name and the schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, object] = Field(default_factory=dict[str, object])


class ChatTool(Fields):
    """A tool that the model may call."""

    type: Literal["function"] = "function"
    function: FunctionTool

    cache_control: object = None


class FunctionName(Fields):
    """The name of a function."""

    name: Annotated[str, Field(max_length=256)]


class NamedTool(Fields):
    """The tool that must be called."""

    type: Literal["function"] = "function"
    function: FunctionName


ToolChoice = Literal["auto", "none", "required"] | NamedTool


def offered_in_chat(
    tools: list[ChatTool], choice: ToolChoice, *, is_parallel: bool
) -> OfferedTools:
    """The tools of a request.

    Raises:
        RefusedError: one is unusable.
    """
    offered = [
        Tool(
            function.name, function.description, json.dumps(function.parameters, ensure_ascii=False)
        )
        for function in (tool.function for tool in tools)
    ]
    kind, name = (choice, "") if isinstance(choice, str) else ("named", choice.function.name)
    return offered_tools(offered, kind, name, is_parallel=is_parallel)
