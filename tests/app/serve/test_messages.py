"""Anthropic's messages, asked by Anthropic's own client."""

import json
from collections.abc import Iterator
from typing import Any, cast

import anthropic
import pytest
from anthropic.types import MessageParam, ToolParam

from tests.app.serve.conftest import Spoken, question

TOOL: ToolParam = {
    "name": "look_up",
    "description": "Look a word up.",
    "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "ox"}}\n</tool_call>'
HI: list[MessageParam] = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def client(spoken: Spoken) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(
        base_url=spoken.server.address, api_key="none", max_retries=0
    ) as client:
        yield client


def ask(client: anthropic.Anthropic, **more: Any) -> Any:
    return client.messages.create(
        **{
            "model": "any",
            "max_tokens": 200,
            "messages": [{"role": "user", "content": question()}],
            **more,
        }
    )


def test_a_message_is_answered(spoken: Spoken, client: anthropic.Anthropic) -> None:
    spoken.say("Hello.")
    message = ask(client, system="Be brief.")
    assert [block.text for block in message.content] == ["Hello."]
    assert (message.stop_reason, message.stop_sequence) == ("end_turn", None)
    assert message.model == "scripted"
    assert message.usage.output_tokens == len("Hello.") + 1
    assert spoken.prompt.startswith("<|im_start|>system\nBe brief.<|im_end|>")


def test_cached_tokens_are_counted_apart(spoken: Spoken, client: anthropic.Anthropic) -> None:
    spoken.say("Hello.")
    first, second = (ask(client, messages=HI, system="Same.").usage for _ in range(2))
    whole = first.input_tokens + first.cache_read_input_tokens
    assert second.cache_read_input_tokens > 0
    assert second.input_tokens + second.cache_read_input_tokens == whole == len(spoken.prompt)


def test_a_stream_has_thinking_text_and_calls_in_blocks(
    spoken: Spoken, client: anthropic.Anthropic
) -> None:
    spoken.say(f"<think>\nHm.\n</think>\n\nI look.\n{CALL}\n{CALL}")
    kinds: list[str] = []
    with client.messages.stream(model="any", max_tokens=400, messages=HI, tools=[TOOL]) as stream:
        for event in stream:
            if event.type not in kinds[-1:]:
                kinds.append(event.type)
        message = stream.get_final_message()
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    thinking, text, *calls = cast("Any", message.content)
    assert (thinking.thinking, text.text) == ("Hm.", "I look.")
    assert [(call.name, call.input) for call in calls] == [("look_up", {"word": "ox"})] * 2
    assert calls[0].id != calls[1].id
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens > 0


def test_calls_and_results_go_back_through_the_template(
    spoken: Spoken, client: anthropic.Anthropic
) -> None:
    spoken.say(CALL)
    called = ask(client, tools=[TOOL])
    (block,) = called.content
    spoken.say("An animal.")
    history: list[Any] = [
        *HI,
        {"role": "assistant", "content": called.content},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": block.id, "content": "bovine"},
                {"type": "text", "text": "So?"},
            ],
        },
    ]
    message = ask(client, messages=history, tools=[TOOL])
    assert message.content[0].text == "An animal."
    assert CALL in spoken.prompt
    turns = spoken.prompt.split("<|im_start|>")
    assert turns[-3:-1] == ["tool\nbovine<|im_end|>\n", "user\nSo?<|im_end|>\n"]


def test_one_call_at_most_if_it_is_asked_for(spoken: Spoken, client: anthropic.Anthropic) -> None:
    spoken.say(f"{CALL}{CALL}")
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    message = ask(client, tools=[TOOL], tool_choice=choice)
    assert len(message.content) == 1


def test_without_tools_or_with_none_to_choose_a_call_is_text(
    spoken: Spoken, client: anthropic.Anthropic
) -> None:
    spoken.say(CALL)
    for more in ({}, {"tools": [TOOL], "tool_choice": {"type": "none"}}):
        message = ask(client, **more)
        assert [block.text for block in message.content] == [CALL]
        assert message.stop_reason == "end_turn"
        assert "look_up" not in spoken.prompt


def test_a_stop_sequence_ends_it_and_is_named(spoken: Spoken, client: anthropic.Anthropic) -> None:
    spoken.say("one, two, three")
    message = ask(client, stop_sequences=["x", ", th"])
    assert message.content[0].text == "one, two"
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", ", th")


def test_a_reply_that_was_cut_says_so(spoken: Spoken, client: anthropic.Anthropic) -> None:
    spoken.say("Hello.")
    message = ask(client, max_tokens=2)
    assert (message.content[0].text, message.stop_reason) == ("He", "max_tokens")


def test_the_arguments_of_a_call_that_was_cut_are_as_much_as_is_known(
    spoken: Spoken, client: anthropic.Anthropic
) -> None:
    spoken.say('<tool_call>{"name": "look_up", "arguments": {"word": "oxen", "n": 1}}')
    message = ask(client, tools=[TOOL], max_tokens=57)
    assert message.stop_reason == "max_tokens"
    assert message.content[0].input == {"word": "oxe"}


def test_the_changing_header_of_a_program_is_left_out(
    spoken: Spoken, client: anthropic.Anthropic
) -> None:
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=abcde;"},
        {"type": "text", "text": "You code.", "cache_control": {"type": "ephemeral"}},
    ]
    spoken.say("Yes.")
    ask(client, system=system)
    assert spoken.prompt.startswith("<|im_start|>system\nYou code.<|im_end|>")


def test_a_begun_answer_is_continued(spoken: Spoken, client: anthropic.Anthropic) -> None:
    spoken.say("<think> 2")
    begun = [{"role": "user", "content": question()}, {"role": "assistant", "content": "1"}]
    message = ask(client, messages=begun)
    assert message.content[0].text == "<think> 2"
    rendered, added = spoken.model.prompts
    assert rendered.endswith("<|im_start|>assistant\n")
    assert added == "1"


def test_tokens_are_counted_without_a_reply(spoken: Spoken, client: anthropic.Anthropic) -> None:
    asked: list[MessageParam] = [{"role": "user", "content": question()}]
    count = client.messages.count_tokens(model="any", messages=asked, tools=[TOOL]).input_tokens
    assert count == len(spoken.prompt)
    assert '"look_up"' in spoken.prompt
    many = "long " * 4000
    long = client.messages.count_tokens(model="any", messages=[{"role": "user", "content": many}])
    assert long.input_tokens > len(many)


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "image": ({"messages": [{"role": "user", "content": [IMAGE]}]}, "send the image itself"),
    "document": (
        {"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
        "send the file itself",
    ),
    "role": ({"messages": [{"role": "bishop", "content": "Hi"}]}, "messages.0.role"),
    "nothing": ({"messages": []}, "messages"),
    "only a beginning": ({"messages": [{"role": "assistant", "content": "a"}]}, "messages"),
    "unknown field": ({"extra_body": {"mcp_servers": []}}, "mcp_servers is not supported"),
    "server tool": ({"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools.0.type"),
    "no such tool": ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "no such"),
    "same tool twice": ({"tools": [TOOL, TOOL]}, "same name"),
    "name of a tool": ({"tools": [{**TOOL, "name": "a b"}]}, "tools.0"),
    "max_tokens": ({"max_tokens": 0}, "max_tokens"),
    "temperature": ({"extra_body": {"temperature": -1}}, "temperature"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_done_is_refused_by_name(client: anthropic.Anthropic, name: str) -> None:
    more, words = BAD[name]
    with pytest.raises(anthropic.BadRequestError) as refused:
        ask(client, **more)
    body = cast("dict[str, Any]", refused.value.body)
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert words in body["error"]["message"]


def test_a_prompt_that_is_too_long_says_so_in_the_words_that_clients_know(
    client: anthropic.Anthropic,
) -> None:
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: "):
        ask(client, messages=[{"role": "user", "content": "long " * 4000}])


def test_a_failure_ends_the_stream_with_an_error(
    spoken: Spoken, client: anthropic.Anthropic
) -> None:
    spoken.say("Hello.")
    spoken.model.fails_at = 3
    try:
        with pytest.raises(anthropic.APIStatusError) as failed:
            list(ask(client, stream=True))
    finally:
        spoken.model.fails_at = None
    assert json.loads(json.dumps(failed.value.body))["error"]["type"] == "api_error"
    assert ask(client).content[0].text == "Hello."
