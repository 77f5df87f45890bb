"""Anthropic's own SDK: a stream, a tool loop, and counted tokens."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from app.serve.server import Server
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import END, ScriptedModel

anthropic = pytest.importorskip("anthropic")

pytestmark = pytest.mark.slow  # the SDK alone takes a second to import

_CALL = ['{"name": "weather", ', '"arguments": ', '{"city": "Oslo"}', "}"]
_ANSWER = ["It ", "rains."]
_WEATHER = {
    "name": "weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_ASKED = [{"role": "user", "content": "How is the weather in Oslo?"}]


Connect = Callable[[Server], Any]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes a client of a server."""
    with ExitStack() as held:

        def client(server: Server) -> Any:
            return held.enter_context(
                anthropic.Anthropic(base_url=server.address, auth_token="none", max_retries=0)
            )

        yield client


def test_a_tool_is_called_in_a_stream_and_its_result_answered(
    serve: Serve, connect: Connect
) -> None:
    model = ScriptedModel([*_CALL, *_ANSWER])
    client = connect(serve(model))
    model.script = [*map(model.texts.index, _CALL), END]

    with client.messages.stream(
        model="any", max_tokens=100, messages=_ASKED, tools=[_WEATHER]
    ) as stream:
        asked = stream.get_final_message()
    (call,) = asked.content
    model.script = [*map(model.texts.index, _ANSWER), END]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
    turns = [
        *_ASKED,
        {"role": "assistant", "content": asked.content},
        {"role": "user", "content": [result]},
    ]
    answered = client.messages.create(model="any", max_tokens=100, messages=turns, tools=[_WEATHER])

    assert asked.stop_reason == "tool_use"
    assert (call.type, call.name, call.input) == ("tool_use", "weather", {"city": "Oslo"})
    assert answered.content[0].text == "It rains."
    assert answered.stop_reason == "end_turn"


def test_counted_tokens_are_those_that_a_request_then_uses(serve: Serve, connect: Connect) -> None:
    client = connect(serve(ScriptedModel(["fine"])))

    counted = client.messages.count_tokens(model="any", messages=_ASKED)
    usage = client.messages.create(model="any", max_tokens=9, messages=_ASKED).usage

    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0) > 0
