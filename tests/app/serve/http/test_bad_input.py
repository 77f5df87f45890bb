"""What is malformed, out of range or not supported is refused, named, and costs no pass."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("uvicorn")

from app.serve.server import Server
from app.serve.server_options import MOST_CHOICES, MOST_ITEMS, MOST_STOPS
from tests.fixtures.scripted import ScriptedModel, opened
from tests.fixtures.served_engine import (
    CHAT,
    COMPLETIONS,
    HI,
    JSON,
    connected,
    post,
    read_to_end,
    read_until,
    request_bytes,
    send,
    serving,
)

MODEL = ScriptedModel(["one ", "two ", "three"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("home"), opened(MODEL)) as served:
        yield served


@pytest.fixture(autouse=True)
def _engine_is_untouched(server: Server) -> Iterator[None]:
    passes = MODEL.passes
    yield
    assert MODEL.passes == passes
    assert post(server, CHAT, HI).json["choices"][0]["message"]["content"] == "one two three"


def hi(**fields: Any) -> dict[str, Any]:
    return {**HI, **fields}


def said(role: str, content: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content}]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (hi(temperature=-0.1), "temperature"),
        (hi(temperature=0.0001), "temperature"),
        (hi(top_p=0), "top_p"),
        (hi(top_p=1.5), "top_p"),
        (hi(max_tokens=0), "max_tokens"),
        (hi(max_tokens="5"), "max_tokens"),
        (hi(max_tokens=True), "max_tokens"),
        (hi(temperature="1"), "temperature"),
        (hi(stream=1), "stream"),
        (hi(stream_options={"include_usage": "yes"}), "stream_options.include_usage"),
        (hi(n=0), "n"),
        (hi(n=MOST_CHOICES + 1), "n"),
        (hi(seed=-2), "seed"),
        (hi(seed=1 << 63), "seed"),
        (hi(top_k=-1), "top_k"),
        (hi(presence_penalty=2.1), "presence_penalty"),
        (hi(frequency_penalty=-2.1), "frequency_penalty"),
        (hi(logit_bias={"4": 101}), "logit_bias.4"),
        (hi(logit_bias={"-1": 1}), "logit_bias.-1"),
        (hi(logit_bias={"5": 1}), "logit_bias"),
        (hi(logit_bias={"x": 1}), "logit_bias.x"),
        (hi(stop=""), "stop"),
        (hi(stop=["a"] * (MOST_STOPS + 1)), "stop"),
        (hi(stop=[1]), "stop.0"),
        (hi(top_logprobs=2), "top_logprobs"),
        (hi(logprobs=True, top_logprobs=21), "top_logprobs"),
        (hi(response_format={"type": "xml"}), "response_format.type"),
        (hi(response_format={"type": "json_schema"}), "response_format.json_schema"),
        (hi(response_format={"type": "json_object"}, grammar="root ::= [a-z]"), "grammar"),
        (hi(modalities=["audio"]), "modalities.0"),
        (hi(web_search_options={}), "web_search_options"),
        (hi(something_new=1), "something_new"),
        (hi(messages=[HI["messages"][0]] * (MOST_ITEMS + 1)), "messages"),
        ({}, "messages"),
        (said("robot", "hi"), "messages.0.role"),
        (said("user", 5), "messages.0.content"),
        (said("user", None), "messages.0.content"),
        (said("tool", None), "messages.0.content"),
        (said("assistant", None), "messages.0.content"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        (
            {"messages": [{"role": "user", "tool_calls": [{"function": {"name": "f"}}]}]},
            "messages.0.content",
        ),
        (
            said("user", [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]),
            "messages.0.content.0",
        ),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_name(
    server: Server, body: dict[str, Any], param: str
) -> None:
    answered = post(server, CHAT, body)
    assert answered.status == 400
    assert answered.error["param"] == param
    assert answered.error["type"] == "invalid_request_error"
    assert "Traceback" not in answered.text


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"prompt": [1, 2, 3]}, "prompt.0", "prompt.0: must be a valid string"),
        ({"prompt": "a", "echo": True}, "echo", "echo: must be False"),
        ({"prompt": "a", "best_of": 2}, "best_of", "best_of: must be 1"),
        ({"prompt": ["a"] * 9, "n": 2}, "n", ""),
        ({"prompt": ["a"] * (MOST_CHOICES + 1)}, "prompt", "prompt: must have at most"),
        ({"prompt": "a", "messages": []}, "messages", "messages is not supported"),
        ({}, "prompt", "prompt is missing"),
    ],
)
def test_completions_refuse_by_name_too(
    server: Server, body: Any, param: str, message: str
) -> None:
    answered = post(server, COMPLETIONS, body)
    assert answered.status == 400
    assert answered.error["param"] == param
    assert answered.error["message"].startswith(message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "the body must be a valid object"),
        (b"{", "the body is not valid JSON: it ends within an object at line 1 column 1"),
        (hi(logit_bias={"a": "b"}), "logit_bias.a: must be a valid integer or a valid number"),
        ({"messages": ["hi"]}, "messages.0: must be a valid object"),
        (hi(prediction="hi"), "prediction: must be a valid object"),
        (hi(logit_bias=[]), "logit_bias: must be a valid object"),
        ({"messages": "hi"}, "messages: must be a valid list"),
        ({"messages": []}, "messages: must have at least 1 item"),
        (hi(messages=None), "messages is missing"),
        (hi(max_tokens=-1), "max_tokens: must be greater than or equal to 1"),
        (hi(max_tokens=1.5), "max_tokens: must be a valid integer"),
        (hi(stream="yes"), "stream: must be a valid boolean"),
        (hi(stop=5), "stop: must be a valid string or a valid list"),
        (hi(stop=[""]), "stop.0: must have at least 1 character"),
        (hi(stop=["."] * (MOST_STOPS + 1)), f"stop: must have at most {MOST_STOPS} items"),
        (said("user", [{"type": 5}]), "messages.0.content.0.type: must be a valid string"),
        (
            hi(tool_choice="x"),
            "tool_choice: must be 'auto', 'none' or 'required' or a valid object",
        ),
        (hi(n="2", temperature="x"), "temperature: must be a valid number"),
    ],
)
def test_errors_are_in_words_of_json(server: Server, body: Any, message: str) -> None:
    assert post(server, CHAT, body).error["message"] == message


def test_an_empty_prompt_and_a_gap_for_a_model_that_fills_none_are_refused(server: Server) -> None:
    for body in ({"prompt": ""}, {"prompt": "a", "suffix": "b"}):
        assert post(server, COMPLETIONS, body).status == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"[]",
        b'"hi"',
        b"\xff\xfe{}",
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": 1e999}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": -Infinity}',
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "hi"}], "seed": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_json_or_no_number_is_refused(server: Server, body: bytes) -> None:
    answered = post(server, CHAT, body)
    assert answered.status == 400
    assert answered.error["message"]


def test_a_conversation_that_does_not_fit_is_refused_whole(server: Server) -> None:
    long = said("user", "x" * MODEL.n_ctx)
    for body in (long, {**long, "stream": True}):
        answered = post(server, CHAT, body)
        assert answered.status == 400
        assert answered.error["code"] == "context_length_exceeded"
    asked = post(server, COMPLETIONS, {"prompt": "x" * MODEL.n_ctx})
    assert asked.error["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({}, 415),
        ({**JSON, "Content-Encoding": "gzip"}, 415),
    ],
)
def test_a_page_cannot_post_without_asking_first(
    server: Server, headers: dict[str, str], status: int
) -> None:
    answered = post(server, CHAT, HI, headers)
    assert answered.status == status
    assert "access-control-allow-origin" not in answered.headers


def test_other_paths_and_methods_have_errors_of_the_same_form(server: Server) -> None:
    assert send(server, "GET", "/v1/nothing").error["type"] == "not_found_error"
    assert "/v1/chat/completions" in send(server, "POST", "/chat/completions").error["message"]
    assert "use" not in send(server, "POST", "/nothing").error["message"]
    assert send(server, "GET", CHAT).status == 405
    assert send(server, "GET", CHAT).headers["allow"] == "POST"
    assert send(server, "OPTIONS", CHAT).status == 405
    assert send(server, "DELETE", "/health").status == 405
    assert send(server, "GET", "/v1/models/other").status == 404
    assert send(server, "GET", "/v1/models/../../etc/passwd").status == 404


def test_a_body_that_is_too_large_is_refused_by_its_length_alone(server: Server) -> None:
    head = request_bytes({}).replace(b"Content-Length: 2", b"Content-Length: 104857600")
    with connected(server) as connection:
        connection.sendall(head)
        came = read_until(connection, b"}")
    assert came.startswith(b"HTTP/1.1 413")


def test_a_body_that_grows_too_large_is_refused(server: Server) -> None:
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    chunk = b"x" * (1 << 20)
    with connected(server) as connection:
        connection.sendall(head)
        for _ in range(11):
            connection.sendall(b"100000\r\n" + chunk + b"\r\n")
        came = read_until(connection, b"}")
    assert came.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"NONSENSE\r\n\r\n",
        b"GET /" + b"a" * 100_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000,
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_what_is_no_http_is_answered_with_an_error_and_the_end(
    server: Server, garbage: bytes
) -> None:
    with connected(server) as connection:
        connection.sendall(garbage)
        connection.settimeout(60)
        came = read_to_end(connection)
    assert came.startswith(b"HTTP/1.1 400")


UNUSABLE = {"type": "objekt"}
FORM = {"type": "json_schema", "json_schema": {"schema": UNUSABLE}}
FUNCTION = {"name": "f", "parameters": {"properties": {"a": UNUSABLE}}}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, said("user", "x" * MODEL.n_ctx), "messages"),
        (COMPLETIONS, {"prompt": "x" * MODEL.n_ctx}, "prompt"),
        ("/v1/responses", {"input": "x" * MODEL.n_ctx}, "input"),
        (CHAT, hi(response_format=FORM), "response_format"),
        (CHAT, hi(grammar="root ::= ["), "grammar"),
        (CHAT, hi(grammar="root ::= root"), "grammar"),
        (
            CHAT,
            hi(tools=[{"type": "function", "function": FUNCTION}], tool_choice="required"),
            "tools",
        ),
        (COMPLETIONS, {"prompt": "a", "response_format": FORM}, "response_format"),
        (COMPLETIONS, {"prompt": "a", "grammar": "root ::= ["}, "grammar"),
        (
            "/v1/responses",
            {"input": "a", "text": {"format": {"type": "json_schema", "schema": UNUSABLE}}},
            "text.format",
        ),
        (COMPLETIONS, {"prompt": "", "response_format": {"type": "json_object"}}, None),
    ],
)
def test_what_the_engine_refuses_is_named_as_the_dialect_names_it(
    server: Server, path: str, body: Any, param: str | None
) -> None:
    for asked in (body, {**body, "stream": True}):
        refused = post(server, path, asked)
        assert (refused.status, refused.error["param"]) == (400, param)
