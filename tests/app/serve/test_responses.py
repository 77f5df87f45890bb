"""OpenAI's responses, asked by OpenAI's own client."""

from typing import Any, cast

import openai
import pytest
from openai.types.responses import FunctionToolParam

from tests.app.serve.conftest import Spoken, question

TOOL: FunctionToolParam = {
    "type": "function",
    "name": "look_up",
    "description": "Look a word up.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    "strict": False,
}
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "ox"}}\n</tool_call>'


def ask(client: openai.OpenAI, **more: Any) -> Any:
    return client.responses.create(**{"model": "any", "input": question(), **more})


def test_a_text_is_answered(spoken: Spoken, client: openai.OpenAI) -> None:
    spoken.say("Hello.")
    response = ask(client, instructions="Be brief.")
    assert (response.output_text, response.status) == ("Hello.", "completed")
    assert response.usage.output_tokens == len("Hello.") + 1
    assert response.usage.input_tokens == len(spoken.prompt)
    assert spoken.prompt.startswith("<|im_start|>system\nBe brief.<|im_end|>")


def test_a_response_tells_which_form_was_asked_for(spoken: Spoken, client: openai.OpenAI) -> None:
    spoken.say("1")
    form = {"type": "json_schema", "name": "count", "schema": {"type": "integer"}}
    response = ask(client, text={"format": form}).model_dump(by_alias=True, exclude_none=True)
    assert (response["output"][0]["content"][0]["text"], response["text"]["format"]) == ("1", form)
    assert ask(client).text.format.type == "text"


def test_a_stream_has_reasoning_text_and_calls(spoken: Spoken, client: openai.OpenAI) -> None:
    spoken.say(f"<think>\nHm.\n</think>\n\nI look.\n{CALL}\n{CALL}")
    kinds: list[str] = []
    numbers: list[int] = []
    with client.responses.stream(model="any", input="Hi", tools=[TOOL]) as stream:
        for event in stream:
            kinds.append(event.type)
            numbers.append(event.sequence_number)
        response = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert numbers == list(range(len(numbers)))
    assert (
        kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 4
    )
    reasoning, message, *calls = cast("Any", response.output)
    assert reasoning.content[0].text == "Hm."
    assert response.usage
    assert response.usage.output_tokens_details.reasoning_tokens == len(
        "<think>\nHm.\n</think>\n\n"
    )
    assert message.content[0].text == response.output_text == "I look."
    assert [(call.name, call.arguments) for call in calls] == [("look_up", '{"word": "ox"}')] * 2
    assert calls[0].call_id != calls[1].call_id


def test_items_go_back_through_the_template(spoken: Spoken, client: openai.OpenAI) -> None:
    spoken.say(f"<think>Hm.</think>I look.\n{CALL}\n{CALL}")
    called = ask(client, tools=[TOOL])
    outputs = [
        {"type": "function_call_output", "call_id": item.call_id, "output": f"bovine {number}"}
        for number, item in enumerate(called.output[2:])
    ]
    spoken.say("An animal.")
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        *(item.model_dump() for item in called.output),
        *outputs,
    ]
    assert ask(client, input=history, tools=[TOOL]).output_text == "An animal."
    turns = spoken.prompt.split("<|im_start|>")
    assert turns[2] == "system\nBe brief.<|im_end|>\n"
    assert turns[4] == f"assistant\nI look.\n{CALL}\n{CALL}<|im_end|>\n"
    assert turns[5:7] == [f"tool\nbovine {number}<|im_end|>\n" for number in (0, 1)]


def test_a_reply_that_was_cut_is_incomplete(spoken: Spoken, client: openai.OpenAI) -> None:
    spoken.say("Hello.")
    response = ask(client, max_output_tokens=2)
    assert (response.status, response.output_text) == ("incomplete", "He")
    assert response.incomplete_details.reason == "max_output_tokens"
    events = [event.type for event in ask(client, max_output_tokens=2, stream=True)]
    assert events[-1] == "response.incomplete"


def test_tools_of_other_kinds_are_left_out(spoken: Spoken, client: openai.OpenAI) -> None:
    spoken.say("Yes.")
    ask(client, tools=[{"type": "web_search"}, {"type": "local_shell"}, TOOL])
    assert "look_up" in spoken.prompt
    assert "web_search" not in spoken.prompt


def test_turns_are_dropped_only_if_it_is_asked_for(spoken: Spoken, client: openai.OpenAI) -> None:
    spoken.say("Yes.")
    turns = [
        {"role": role, "content": "long " * 800}
        for role in ("user", "assistant", "user", "assistant", "user")
    ]
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, input=turns)
    assert refused.value.code == "context_length_exceeded"
    assert ask(client, input=turns, truncation="auto").output_text == "Yes."


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "state": ({"previous_response_id": "resp_1"}, "previous_response_id is not supported"),
    "conversation": ({"conversation": "conv_1"}, "conversation is not supported"),
    "background": ({"background": True}, "background"),
    "item": ({"input": [{"type": "item_reference", "id": "x"}]}, "'item_reference'"),
    "image": (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        "send the image itself, in base64",
    ),
    "role": ({"input": [{"role": "bishop", "content": "Hi"}]}, "input"),
    "nothing": ({"input": []}, "input"),
    "no content": ({"input": [{"role": "user"}]}, "input.0.content is missing"),
    "logprobs": ({"top_logprobs": 3}, "top_logprobs"),
    "no such tool": ({"tool_choice": {"type": "function", "name": "x"}}, "no such tool"),
    "no tools": ({"tool_choice": "required"}, "there are no tools"),
    "a form and tools": (
        {"tools": [TOOL], "text": {"format": {"type": "json_object"}}}, "tool_choice"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_done_is_refused_by_name(client: openai.OpenAI, name: str) -> None:
    more, words = BAD[name]
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **more)
    assert words in refused.value.message


def test_a_failure_ends_the_stream_with_a_failed_response(
    spoken: Spoken, client: openai.OpenAI
) -> None:
    spoken.say("Hello.")
    spoken.model.fails_at = 3
    try:
        events = list(ask(client, stream=True))
    finally:
        spoken.model.fails_at = None
    assert events[-1].type == "response.failed"
    assert "the engine failed" in events[-1].response.error.message
    assert ask(client).output_text == "Hello."
