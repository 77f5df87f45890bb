"""What a body may cost is bounded before, and while, its fields are checked."""

import json
from typing import Any

import pytest

pytest.importorskip("pydantic")

from pydantic import BaseModel, ValidationError, model_validator

from app.serve.dialects.anthropic import MessagesRequest
from app.serve.dialects.chat import ChatRequest, conversation_of
from app.serve.dialects.responses import ResponsesRequest
from app.serve.refusal import RefusedError
from app.serve.request_body import Fields, read_body
from app.serve.server_options import MOST_BIASES, MOST_FIELDS, MOST_VALUES
from backends.chat.message import Message

WRONG: list[Any] = [{}] * 3000


def said(content: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": content}] * 3}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (ChatRequest, said(WRONG)),
        (ChatRequest, {"messages": WRONG}),
        (ChatRequest, {**said("hi"), "tools": WRONG}),
        (ChatRequest, {**said("hi"), "stop": [""] * 16}),
        (ChatRequest, {**said("hi"), "modalities": ["x"] * 3000}),
        (ChatRequest, {**said("hi"), **{f"field{n}": n for n in range(MOST_FIELDS)}}),
        (ChatRequest, {**said("hi"), "logit_bias": {f"x{n}": 0 for n in range(MOST_BIASES + 1)}}),
        (MessagesRequest, {**said(WRONG), "max_tokens": 1}),
        (MessagesRequest, {**said("hi"), "max_tokens": 1, "system": WRONG}),
        (MessagesRequest, {**said([{"type": "tool_result", "content": WRONG}]), "max_tokens": 1}),
        (ResponsesRequest, {"input": [{"content": WRONG}] * 3000}),
        (ResponsesRequest, {"input": [{"type": "function_call_output", "output": WRONG}]}),
    ],
)
def test_the_first_errors_end_the_check(kind: type[BaseModel], body: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(body)
    assert caught.value.error_count() <= 3


class Counted(Fields):
    """A body whose checks are counted."""

    checks: int = 0
    text: object = None

    @model_validator(mode="before")
    @classmethod
    def _count(cls, value: object) -> object:
        seen.append(value)
        return value


seen: list[object] = []


@pytest.mark.parametrize(
    "bomb",
    [
        b'{"text": [' + b"{}," * MOST_VALUES + b"{}]}",
        b'{"text": [' + b'"",' * MOST_VALUES + b'""]}',
        b'{"text": ' + b"[" * (MOST_VALUES + 1),
        b'{"text": "' + b'"' * (5 * MOST_VALUES),
        b'{"text": ["\\\\",' + b"1," * MOST_VALUES + b"1]}",
    ],
)
def test_a_body_of_too_many_values_is_refused_before_it_is_parsed(bomb: bytes) -> None:
    seen.clear()
    with pytest.raises(RefusedError, match="values"):
        read_body(Counted, bomb)
    assert not seen


def test_marks_in_a_text_count_as_nothing() -> None:
    seen.clear()
    text = '[{,}] "quoted" \\ \\" ' * MOST_VALUES
    assert read_body(Counted, json.dumps({"text": text}).encode()).text == text
    assert len(seen) == 1


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_no_number_is_infinite_wherever_it_is(number: str) -> None:
    function = '{"name": "f", "parameters": {"x": [' + number + "]}}"
    body = f'{{"messages": [{{"role": "user"}}], "tools": [{{"function": {function}}}]}}'
    with pytest.raises(RefusedError, match="not valid JSON"):
        read_body(ChatRequest, body.encode())


def test_contents_in_parts_roles_and_results_without_an_id_are_read() -> None:
    parts = [{"type": "text", "text": text} for text in "ab"]
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": parts},
        {"role": "tool", "content": "4"},
    ]
    read = conversation_of(ChatRequest.model_validate({"messages": messages}).messages)
    turns = [Message("user", "ab"), Message("tool", "4", answers="unnamed")]
    assert (read.system, read.turns) == ("Be brief.", turns)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"maxTokens": 5}, "maxTokens"),
        ({"max-tokens": 5}, "max-tokens"),
        ({"a b": 5}, "a b"),
        ({"tools": [{"function": {}}]}, "tools.0.function.name"),
        ({"tool_choice": "x"}, "tool_choice"),
        ({"response_format": {"type": "json_schema", "json_schema": {"Schema": {}}}},
         "response_format.json_schema.Schema"),
    ],
)  # fmt: skip
def test_a_field_is_named_as_it_was_sent(fields: dict[str, object], param: str) -> None:
    with pytest.raises(RefusedError) as caught:
        read_body(ChatRequest, json.dumps({**said("hi"), **fields}).encode())
    assert caught.value.param == param
    assert caught.value.message.startswith(param)


def test_whole_numbers_are_taken_where_others_are_meant_and_names_of_tokens_are_numbers() -> None:
    read = read_body(
        ChatRequest, json.dumps({**said("hi"), "temperature": 1, "logit_bias": {"4": 2}}).encode()
    )
    assert (read.temperature, read.logit_bias) == (1.0, {4: 2.0})


def test_a_message_that_calls_tools_needs_no_content() -> None:
    call = {"id": "a", "function": {"name": "f"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    read = read_body(ChatRequest, json.dumps({"messages": [message]}).encode())
    (turn,) = conversation_of(read.messages).turns
    assert (turn.content, turn.calls[0].name) == ("", "f")


HARMLESS = ("user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_options")


@pytest.mark.parametrize("field", HARMLESS)
def test_fields_that_change_no_answer_are_ignored(field: str) -> None:
    for kind, body in ((ChatRequest, said("hi")), (ResponsesRequest, {"input": "hi"})):
        assert read_body(kind, json.dumps({**body, field: {"any": "thing"}}).encode())
