"""Ollama's own client: chats, streams, tools, forms, images, and what it asks about models."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

ollama = pytest.importorskip("ollama")

from app.serve.server_options import Limits
from tests.app.serve.conftest import Serve, Spoken, question
from tests.app.serve.http.test_streams import Passes
from tests.app.serve.test_chat_tools import CALL
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.served_engine import post, send


def look_up(word: str) -> str:
    """Look a word up.

    Args:
      word: the word
    """
    return {"ox": "bovine"}[word]


@pytest.fixture(scope="module")
def asks(spoken: Spoken) -> Iterator[Any]:
    with ollama.Client(host=spoken.server.address) as client:
        yield client


def user(content: str = "") -> list[dict[str, Any]]:
    return [{"role": "user", "content": content or question()}]


def test_a_chat_is_answered_whole_and_in_lines(spoken: Spoken, asks: Any) -> None:
    spoken.say("<think>Hm.</think>Good day")
    whole = asks.chat("any", user(), think=True)
    assert (whole.message.content, whole.message.thinking) == ("Good day", "Hm.")
    assert (whole.done, whole.done_reason, whole.model) == (True, "stop", "scripted")
    assert whole.eval_count > len("Good day")
    assert whole.prompt_eval_count > 0
    parts = [whole.load_duration, whole.prompt_eval_duration, whole.eval_duration]
    assert all(part >= 0 for part in parts)
    assert sum(parts) <= whole.total_duration
    spoken.say("<think>Hm.</think>Good day")
    *pieces, last = asks.chat("any", user(), stream=True)
    assert "".join(piece.message.content for piece in pieces) == "Good day"
    assert "".join(piece.message.thinking or "" for piece in pieces) == "Hm."
    assert [piece.done for piece in pieces] == [False] * len(pieces)
    assert (last.done, last.done_reason, last.message.content) == (True, "stop", "")


def test_tools_are_called_and_their_results_go_to_the_model(spoken: Spoken, asks: Any) -> None:
    for stream in (False, True):
        spoken.say(f"I look.\n{CALL}{CALL}")
        messages, told = user(), asks.chat("any", user(), tools=[look_up], stream=stream)
        said = [one.message for one in told] if stream else [told.message]
        calls = [call for one in said for call in one.tool_calls or ()]
        assert [(call.function.name, call.function.arguments) for call in calls] == [
            ("look_up", {"word": "ox"})
        ] * 2
        assert "".join(one.content for one in said) == "I look."
    messages += [
        {"role": "assistant", "content": "I look.", "tool_calls": calls},
        {"role": "tool", "tool_name": "look_up", "content": look_up("ox")},
        {"role": "tool", "tool_name": "look_up", "content": "bovine too"},
    ]
    spoken.say("An animal.")
    assert asks.chat("any", messages, tools=[look_up]).message.content == "An animal."
    assert "Look a word up." in spoken.prompt
    assert f"I look.\n{CALL}" in spoken.prompt
    assert spoken.prompt.index("bovine<|im_end|>") < spoken.prompt.index("bovine too<|im_end|>")


def test_options_hold(spoken: Spoken, asks: Any) -> None:
    spoken.say("one two three")
    options: dict[str, Any] = {"temperature": 0, "num_ctx": 2, "seed": 3, "top_k": 5, "top_p": 0.9}
    said = asks.generate("any", question(), system="Be brief.", options=options, keep_alive="5m")
    assert (said.response, said.done_reason) == ("one two three", "stop")
    assert "Be brief." in spoken.prompt
    spoken.say("one two three")
    said = asks.generate("any", question(), options={"num_predict": 3})
    assert (said.response, said.eval_count, said.done_reason) == ("one", 3, "length")
    spoken.say("one two three")
    said = asks.generate("any", question(), options={"stop": [" th"]}, stream=True)
    assert "".join(part.response for part in said) == "one two"
    spoken.say("one")
    text = question()
    assert asks.generate("any", text, raw=True).response == "one"
    assert "im_start" not in spoken.prompt


def test_the_form_is_kept_to(spoken: Spoken, asks: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [7]}}, "required": ["a"]}
    schema["additionalProperties"] = False
    spoken.say("no JSON at all")
    said = asks.chat("any", user(), format=schema, options={"num_predict": 40})
    assert json.loads(said.message.content) == {"a": 7}
    said = asks.generate("any", question(), format="json", options={"num_predict": 3})
    assert said.response.lstrip().startswith("{")


def test_a_request_without_a_prompt_only_loads(spoken: Spoken, asks: Any) -> None:
    passes = spoken.model.passes
    *_, streamed = asks.generate("any", stream=True)
    for said in (asks.chat("any"), asks.generate("any"), streamed):
        assert (said.done, said.done_reason) == (True, "load")
    assert spoken.model.passes == passes


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"options": {"mirostat": 2}}, "options.mirostat"),
        ({"options": {"temperature": -1}}, "options.temperature"),
        ({"options": {"repeat_last_n": 5}}, "options.repeat_last_n is not supported"),
        ({"logprobs": True}, "logprobs is not supported"),
        ({"format": "xml"}, "format"),
        ({"messages": [{"role": "user", "images": ["%"]}]}, "not base64"),
        ({"messages": [{"role": "user", "content": "x" * 200_000}]}, "context"),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(
    spoken: Spoken, fields: dict[str, Any], words: str
) -> None:
    refused = post(spoken.server, "/api/chat", {"messages": user(), **fields})
    assert refused.status == 400
    assert words in refused.error


def test_models_are_told_and_never_changed(spoken: Spoken, asks: Any) -> None:
    passes = spoken.model.passes
    (listed,), (running,) = asks.list().models, asks.ps().models
    assert listed.model == running.model == running.name == "scripted"
    assert listed.details.quantization_level == "F32"
    assert running.context_length == 8192
    shown = asks.show("scripted")
    assert shown.modelinfo["llama.context_length"] == 8192
    assert set(shown.capabilities) >= {"completion", "tools"}
    for path in ("/", "/api/version"):
        assert send(spoken.server, "GET", path).json["version"].count(".") == 2
    for change in (asks.pull, asks.delete, asks.push):
        with pytest.raises(ollama.ResponseError, match="specchat models") as refused:
            change("other")
        assert refused.value.status_code == 403
    assert spoken.model.passes == passes
    assert send(spoken.server, "GET", "/api/nothing").error.startswith("GET /api/nothing")


def test_a_silence_is_filled_with_lines_and_a_failure_is_one(serve: Serve) -> None:
    gate = Passes()
    model = ScriptedModel(["a", "b"], gate=gate, fails_at=1)
    server = serve(model, limits=Limits(heartbeat_seconds=0.01, check_seconds=0.01))
    came: list[str] = []

    def read() -> None:
        for part in client.chat("any", user(), stream=True):
            came.append(part.message.content)
            if len(came) == 5:
                gate.allow(9)

    client = ollama.Client(host=server.address)
    with client, pytest.raises(ollama.ResponseError) as failed:
        read()
    assert came[:5] == [""] * 5
    assert "the engine failed" in failed.value.error
