"""Tools with the bundled model, whose template knows none."""

import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import anthropic
import pytest

from app.loading.session_options import SessionOptions
from app.serve.server import Server
from tests.app.serve.conftest import asking
from tests.fixtures.served_engine import serving

SCHEMA = {
    "type": "object",
    "properties": {"word": {"$ref": "#/$defs/word"}, "most": {"type": "integer"}},
    "required": ["word", "most"],
    "additionalProperties": False,
    "$defs": {"word": {"type": "string", "maxLength": 12}},
}
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}
OTHER = {"type": "function", "function": {"name": "stop"}}
HI = [{"role": "user", "content": "Look the word ox up, at most 3 meanings."}]


@pytest.fixture(scope="module")
def server(llamacpp: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = SessionOptions("demo", "lookup", ctx=1024, threads=1)
    with serving(tmp_path_factory.mktemp("served"), None, options) as served:
        yield served


@pytest.mark.slow
def test_a_model_without_tools_answers_in_words_or_calls(server: Server) -> None:
    with asking(server) as client:
        asked: Any = {"model": "any", "messages": HI, "max_tokens": 12, "tools": [TOOL]}
        choice = client.chat.completions.create(**asked).choices[0]
    assert choice.message.content or choice.message.tool_calls


@pytest.mark.slow
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "look_up"}}]
)
def test_a_call_that_is_required_comes_with_arguments_of_its_schema(
    server: Server, choice: Any
) -> None:
    with asking(server) as client:
        asked: Any = {"model": "any", "messages": HI, "max_tokens": 60, "tool_choice": choice}
        asked["stop"] = ["}", '"']
        tools: Any = [TOOL] if choice == "required" else [OTHER, TOOL]
        reply = client.chat.completions.create(**asked, tools=tools).choices[0]
    assert reply.finish_reason == "tool_calls"
    (call,) = reply.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "look_up"
    arguments = json.loads(call.function.arguments)
    assert set(arguments) == {"word", "most"}
    assert (type(arguments["word"]), type(arguments["most"])) == (str, int)


@pytest.mark.slow
def test_a_required_call_streams_to_anthropics_client(server: Server) -> None:
    tool: Any = {"name": "look_up", "input_schema": SCHEMA}
    asked: Any = {"model": "any", "messages": HI, "max_tokens": 60, "tools": [tool]}
    asked["stop_sequences"] = ["}", '"']
    with (
        anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0) as client,
        client.messages.stream(**asked, tool_choice={"type": "any"}) as stream,
    ):
        message = stream.get_final_message()
    (block,) = message.content
    assert block.type == "tool_use"
    assert set(block.input) == {"word", "most"}
    assert message.stop_reason == "tool_use"


@pytest.mark.slow
@pytest.mark.parametrize("longest", [3, 9])
def test_a_required_call_that_is_cut_is_no_content(server: Server, longest: int) -> None:
    with asking(server) as client:
        asked: Any = {"model": "any", "messages": HI, "max_tokens": longest, "tools": [TOOL]}
        reply = client.chat.completions.create(**asked, tool_choice="required").choices[0]
        parts = client.chat.completions.create(**asked, tool_choice="required", stream=True)
        streamed = [part.choices[0].delta for part in parts]
    assert reply.finish_reason == "length"
    assert not reply.message.content
    assert not any(delta.content for delta in streamed)
    calls = [call.function.name for call in reply.message.tool_calls or []]  # type: ignore[union-attr]
    named = [call.function.name for delta in streamed for call in delta.tool_calls or []]  # type: ignore[union-attr]
    assert calls == list(filter(None, named)) == (["look_up"] if longest == 9 else [])
