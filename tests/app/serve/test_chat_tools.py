"""Tools in OpenAI's chat, asked by OpenAI's own client."""

from typing import Any, cast

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.app.serve.conftest import Serve, Spoken, asking, question
from tests.fixtures.channels import CALLING, CHANNELS, FINAL, REPLY
from tests.fixtures.scripted import ScriptedModel
from tests.fixtures.speaker import Speaker

TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "ox"}}\n</tool_call>'
HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hi"}]


def ask(client: openai.OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(
        **{"model": "any", "messages": [{"role": "user", "content": question()}], **more}
    )


def test_a_call_and_its_result_go_through_the_template(
    spoken: Spoken, client: openai.OpenAI
) -> None:
    spoken.say(f"<think>Hm.</think>I look.\n{CALL}")
    choice = ask(client, tools=[TOOL]).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert (choice.message.content, choice.message.reasoning_content) == ("I look.", "Hm.")
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("look_up", '{"word": "ox"}')
    spoken.say("An animal.")
    result = {"role": "tool", "tool_call_id": call.id, "content": "bovine"}
    history = [*HI, choice.message.model_dump(exclude_none=True), result]
    assert ask(client, messages=history, tools=[TOOL]).choices[0].message.content == "An animal."
    assert f"I look.\n{CALL}<|im_end|>" in spoken.prompt
    assert "<|im_start|>tool\nbovine<|im_end|>" in spoken.prompt


def test_calls_are_streamed_in_pieces(spoken: Spoken, client: openai.OpenAI) -> None:
    spoken.say(f"{CALL}{CALL}")
    names: dict[int, str] = {}
    arguments: dict[int, list[str]] = {}
    reasons: list[str | None] = []
    for chunk in ask(client, tools=[TOOL], stream=True):
        choice = cast("Any", chunk.choices[0])
        reasons.append(choice.finish_reason)
        for call in choice.delta.tool_calls or []:
            names[call.index] = names.get(call.index) or call.function.name
            arguments.setdefault(call.index, []).append(call.function.arguments)
    assert names == {0: "look_up", 1: "look_up"}
    assert ["".join(pieces) for pieces in arguments.values()] == ['{"word": "ox"}'] * 2
    assert reasons[-1] == "tool_calls"


def test_the_clients_own_reader_of_streams_understands_calls(
    spoken: Spoken, client: openai.OpenAI
) -> None:
    spoken.say(f"So.\n{CALL}")
    with client.chat.completions.stream(model="any", messages=HI, tools=[TOOL]) as stream:
        for _ in stream:
            pass
        message = stream.get_final_completion().choices[0].message
    assert message.content == "So."
    assert message.tool_calls
    assert message.tool_calls[0].function.arguments == '{"word": "ox"}'


def test_a_stop_text_ends_content_and_no_call(spoken: Spoken, client: openai.OpenAI) -> None:
    for before in ("", "I look.\n"):
        spoken.say(f"{before}{CALL}{CALL}")
        choice = ask(client, tools=[TOOL], stop=["}", '"', "e>\n"]).choices[0]
        arguments = [call.function.arguments for call in choice.message.tool_calls]
        assert (arguments, choice.finish_reason) == (['{"word": "ox"}'] * 2, "tool_calls")
    spoken.say(f"I }} look. {CALL}")
    choice = ask(client, tools=[TOOL], stop=["}"]).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("I ", "stop")


def test_one_call_at_most_if_it_is_asked_for(spoken: Spoken, client: openai.OpenAI) -> None:
    spoken.say(f"{CALL}{CALL}")
    message = ask(client, tools=[TOOL], parallel_tool_calls=False).choices[0].message
    assert len(message.tool_calls) == 1


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools.0"),
        ({"tools": [TOOL], "response_format": {"type": "json_object"}}, "tool_choice"),
        ({"tool_choice": "required"}, "there are no tools"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools.0"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    client: openai.OpenAI, more: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, **more)
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for p in messages[0].content %}{{ p.no }}{% endfor %}", "leaves it out of the prompt"),
        ("{{ raise_exception('no Hi here') }}", "refuses this conversation: no Hi here"),
    ],
)
def test_a_question_that_the_template_does_not_ask_is_refused(
    serve: Serve, template: str, words: str
) -> None:
    with (
        asking(serve(Speaker(template))) as client,
        pytest.raises(openai.BadRequestError, match=words),
    ):
        ask(client)


@pytest.mark.parametrize("more", [{}, {"tools": [TOOL]}])
def test_a_reply_in_channels_is_reasoning_and_content(serve: Serve, more: dict[str, Any]) -> None:
    """Also at the second turn, where the template refuses marks of channels."""
    model = ScriptedModel(REPLY)
    cast("Any", model.tokenizer).chat_template = CHANNELS
    with asking(serve(model)) as client:
        history: list[Any] = [*HI]
        for _ in range(2):
            message = ask(client, messages=history, **more).choices[0].message
            assert message.reasoning_content == "The user greets. \n\nI greet"
            assert message.content == FINAL
            history += [{"role": "assistant", "content": message.content}, *HI]


def test_a_call_in_channels_is_one(serve: Serve) -> None:
    model = ScriptedModel(CALLING)
    cast("Any", model.tokenizer).chat_template = CHANNELS
    with asking(serve(model)) as client:
        choice = ask(client, messages=HI, tools=[TOOL]).choices[0]
    message = cast("Any", choice.message)
    assert (choice.finish_reason, message.content) == ("tool_calls", None)
    assert message.reasoning_content == "I look."
    called = [(call.function.name, call.function.arguments) for call in message.tool_calls]
    assert called == [("look_up", '{"word": "ox"}')]
