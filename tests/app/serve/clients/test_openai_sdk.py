"""OpenAI's own SDK: streams, a tool loop, replies parsed into pydantic models, completions."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Literal

import pytest

from app.engine.engine import Engine
from app.loading.session_options import SessionOptions
from app.paths import Paths
from app.serve.server import Server
from app.serve.server_options import ServerOptions
from app.settings.answering import Answering
from decoding.sampling.settings import SamplingSettings
from tests.app.serve.conftest import Serve
from tests.fixtures.scripted import END, ScriptedModel
from tests.fixtures.settled import settle

openai = pytest.importorskip("openai")
pydantic = pytest.importorskip("pydantic")

pytestmark = pytest.mark.slow  # the SDK alone takes a second to import

_CALL = ['{"name": "weather", ', '"arguments": ', '{"city": "Oslo"}', "}"]
_ANSWER = ["It ", "rains."]
_WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
_ASKED = [{"role": "user", "content": "How is the weather in Oslo?"}]


Connect = Callable[..., Any]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes a client of a server: connect(server, key="none")."""
    with ExitStack() as held:

        def client(server: Server, key: str = "none") -> Any:
            return held.enter_context(
                openai.OpenAI(base_url=f"{server.address}/v1", api_key=key, max_retries=0)
            )

        yield client


def _says(model: ScriptedModel, pieces: list[str]) -> None:
    model.script = [*map(model.texts.index, pieces), END]


def test_a_stream_has_text_an_end_and_usage(serve: Serve, connect: Connect) -> None:
    client = connect(serve(ScriptedModel(["one ", "two ", "three"])))

    chunks = list(
        client.chat.completions.create(
            model="any", messages=_ASKED, stream=True, stream_options={"include_usage": True}
        )
    )

    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "one two three"
    assert choices[-1].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 4


def test_a_tool_is_called_and_its_result_answered(serve: Serve, connect: Connect) -> None:
    model = ScriptedModel([*_CALL, *_ANSWER])
    client = connect(serve(model))
    _says(model, _CALL)

    asked = client.chat.completions.create(model="any", messages=_ASKED, tools=[_WEATHER])
    message = asked.choices[0].message
    (call,) = message.tool_calls
    _says(model, _ANSWER)
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    answered = client.chat.completions.create(
        model="any", messages=[*_ASKED, message, result], tools=[_WEATHER]
    )

    assert asked.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments) == {"city": "Oslo"}
    assert answered.choices[0].message.content == "It rains."


def test_a_streamed_call_is_put_together_by_the_sdk(serve: Serve, connect: Connect) -> None:
    model = ScriptedModel(_CALL)
    client = connect(serve(model))

    with client.chat.completions.stream(model="any", messages=_ASKED, tools=[_WEATHER]) as stream:
        completion = stream.get_final_completion()

    (call,) = completion.choices[0].message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"city": "Oslo"},
    )


def test_a_text_is_completed(serve: Serve, connect: Connect) -> None:
    client = connect(serve(ScriptedModel(["two ", "three ", "four"])))

    completion = client.completions.create(model="any", prompt="one ", stop=" four")

    assert completion.choices[0].text == "two three"
    assert completion.choices[0].finish_reason == "stop"


def test_a_wrong_key_and_an_unsupported_field_are_errors_of_the_sdk(
    serve: Serve, connect: Connect
) -> None:
    server = serve(ScriptedModel(["never"]), key="a key that is right")

    with pytest.raises(openai.AuthenticationError):
        connect(server, "a wrong key").models.list()
    with pytest.raises(openai.BadRequestError, match="modalities"):
        connect(server, "a key that is right").chat.completions.create(
            model="any", messages=_ASKED, modalities=["text", "audio"]
        )


def test_a_reply_is_parsed_into_a_pydantic_model(llamacpp: object, connect: Connect) -> None:
    class Colour(pydantic.BaseModel):
        name: Literal["red", "green", "blue"]
        is_warm: bool

    engine = Engine(SessionOptions("demo", draft="off"), Paths.of_this_user())
    engine.start()
    settle(engine)
    where = ServerOptions("127.0.0.1", 0)
    server = Server(engine, where, Answering(SamplingSettings(temperature=0.0), 64))
    server.start()
    try:
        completion = connect(server).chat.completions.parse(
            model="any",
            messages=[{"role": "user", "content": "Name a colour."}],
            response_format=Colour,
        )
    finally:
        server.close()
        engine.close(10.0)

    assert isinstance(completion.choices[0].message.parsed, Colour)
