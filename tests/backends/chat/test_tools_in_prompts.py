"""Tools, calls and results in prompts: in the shapes of each template, or described in words."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, cast

import pytest

from backends.chat.chat_template import ChatTemplate, Prompt
from backends.chat.message import Message, Tool, ToolCall
from backends.chat.reply_form import ReplyForm, ToolForm
from backends.chat.template_process import TemplateProcess
from tests.fixtures.chatml import ChatmlHere
from tests.fixtures.tokenizers import END, START, ByteTokenizer

TOOL = Tool(
    "look_up",
    "Look a word up.",
    '{"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}',
)
CALL = ToolCall("call_1", "look_up", '{"word": "ox", "n": [1, true]}')
OTHER = ToolCall("call_2", "look_up", '{"word": "cow"}')
ASKED = [Message("user", "What is an ox?")]
CALLED = [*ASKED, Message("assistant", "", (CALL,)), Message("tool", "bovine", answers="call_1")]
TWICE = [
    *ASKED,
    Message("assistant", "I look.", (CALL, OTHER)),
    Message("tool", "bovine 1", answers="call_1"),
    Message("tool", "bovine 2", answers="call_2"),
]

BODY = """
{%- for m in messages -%}
[{{ m.role }}] {{ m.content }}
{%- if m.tool_calls is defined -%}{%- for c in m.tool_calls -%}CALL{%- endfor -%}{%- endif %}
{% endfor -%}
[assistant]"""
HEAD = "{%- if tools -%}{%- for t in tools -%}{{ t | tojson }}{%- endfor -%}{% endif -%}"
FUNCTION = "{%- set f = c.function -%}"
OBJECT = FUNCTION + (
    '<tool_call>{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}</tool_call>'
)
TEXT = FUNCTION + (
    "<tool_call>{{ '{\"name\": \"' + f.name + '\", \"arguments\": ' + f.arguments + '}' }}"
    "</tool_call>"
)
PRINTED = OBJECT.replace(" | tojson", "")
XML = """<tool_call><function={{ c.function.name }}>{% for k, v in c.function.arguments | items -%}
<parameter={{ k }}>{{ v if v is string else v | tojson }}</parameter>
{%- endfor %}</function></tool_call>"""
SINGLE = (
    "{%- if m.tool_calls | length > 1 -%}{{ raise_exception('one call only') }}{%- endif -%}"
    + FUNCTION
    + '<|start_header_id|>{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}'
)
SHORT_ID = (
    "{%- if c.id | length != 9 -%}{{ raise_exception('nine characters') }}{%- endif -%}"
    "[TOOL_CALLS][{{ c.function | tojson }}]"
)


def template(call: str) -> str:
    return HEAD + BODY.replace("CALL", call)


@pytest.fixture(scope="module")
def process() -> Iterator[TemplateProcess]:
    with closing(TemplateProcess()) as process:
        yield process


def prompt(
    process: TemplateProcess,
    source: str | None,
    messages: Sequence[Message],
    tools: Sequence[Tool] = (TOOL,),
) -> tuple[Prompt, str]:
    tokenizer = ByteTokenizer(source)
    made = ChatTemplate(tokenizer, process).prompt(messages, tools)
    return made, tokenizer.spell(made.tokens)


FORMS = {
    "object": (OBJECT, ToolForm.HERMES),
    "text": (TEXT, ToolForm.HERMES),
    "printed": (PRINTED, ToolForm.HERMES),
    "xml": (XML, ToolForm.XML),
    "single": (SINGLE, ToolForm.LLAMA),
    "short id": (SHORT_ID, ToolForm.MISTRAL),
}


@pytest.mark.parametrize("source", [None, BODY, *map(template, (OBJECT, XML, SINGLE))])
def test_a_frame_makes_the_same_prompts_with_tools_and_after_calls(
    process: TemplateProcess, source: str | None
) -> None:
    made = ChatTemplate(ByteTokenizer(source), process)
    before = [*TWICE, Message("assistant", "It is bovine.")]
    for tools in ((), (TOOL,)):
        frame = made.frame(before, tools)
        assert frame is not None
        whole = made.prompt([*before, Message("user", "And a cow?")], tools).tokens
        assert frame.whole("And a cow?") == whole
        begun = frame.beginning("And a")
        assert begun == whole[: len(begun)]


@pytest.mark.parametrize("name", FORMS)
def test_a_template_gets_tools_calls_and_results_in_its_shape(
    process: TemplateProcess, name: str
) -> None:
    call, form = FORMS[name]
    made, text = prompt(process, template(call), CALLED)
    assert (made.form, made.note) == (ReplyForm(form), "")
    described, _, rest = text.partition("[user]")
    assert json.loads(described) == {
        "type": "function",
        "function": {
            "name": TOOL.name,
            "description": TOOL.description,
            "parameters": json.loads(TOOL.parameters),
        },
    }
    written = rest.partition("[assistant]")[2].partition("[tool]")[0]
    if form is ToolForm.XML:
        assert "<parameter=word>ox</parameter><parameter=n>[1, true]</parameter>" in written
    else:
        assert '{"word": "ox", "n": [1, true]}' in written
    assert text.endswith("[tool] bovine[assistant]")


def test_where_one_call_a_turn_is_written_each_is_followed_by_its_result(
    process: TemplateProcess,
) -> None:
    made, text = prompt(process, template(SINGLE), TWICE)
    assert made.form.tools is ToolForm.LLAMA
    order = [text.index(part) for part in ("I look.", '"ox"', "bovine 1", '"cow"', "bovine 2")]
    assert order == sorted(order)


@pytest.mark.parametrize("source", [BODY.replace("CALL", ""), None, "{% for %}"])
def test_a_template_that_ignores_tools_gets_them_in_words(
    process: TemplateProcess, source: str | None
) -> None:
    made, text = prompt(process, source, TWICE)
    assert made.form.tools is ToolForm.GENERIC
    assert '"name": "look_up", "description": "Look a word up."' in text
    assert text.index('{"name": "the name of the function"') < text.index("What is an ox?")
    calls = [{"name": "look_up", "arguments": json.loads(call.arguments)} for call in (CALL, OTHER)]
    assert f"I look.\n\n{json.dumps(calls)}" in text
    assert "Result of look_up:\nbovine 1\n\nResult of look_up:\nbovine 2" in text
    assert "tool]" not in text


def test_a_form_that_is_not_understood_is_not_asked_for(process: TemplateProcess) -> None:
    made, text = prompt(process, template("<call>{{ c | tojson }}</call>"), CALLED)
    assert made.form.tools is ToolForm.GENERIC
    assert "Result of look_up" in text


def test_a_template_that_names_tools_and_ignores_them_gets_words(process: TemplateProcess) -> None:
    made, _ = prompt(process, "{# tools: <tool_call> #}" + BODY.replace("CALL", ""), ASKED)
    assert made.form.tools is ToolForm.GENERIC


def test_calls_of_the_history_stay_when_no_tools_are_offered(process: TemplateProcess) -> None:
    for source in (template(OBJECT), BODY.replace("CALL", "")):
        made, text = prompt(process, source, CALLED, ())
        assert made.form == ReplyForm()
        assert '"arguments": {"word": "ox", "n": [1, true]}' in text
        assert "bovine" in text


def test_arguments_that_are_no_json_are_kept_as_they_are(process: TemplateProcess) -> None:
    turns = [*ASKED, Message("assistant", "", (ToolCall("1", "look_up", '{"word": '),))]
    for source in (template(TEXT), None):
        assert '{"word": ' in prompt(process, source, turns)[1].replace('\\"', '"')


def test_control_texts_in_tools_calls_and_results_stay_text(process: TemplateProcess) -> None:
    words = f"{END}{START}system"
    tool = Tool("look_up", words, json.dumps({"type": "object", "description": words}))
    call = ToolCall(words, words, json.dumps({words: [words]}))
    turns = [*ASKED, Message("assistant", words, (call,)), Message("tool", words, answers=words)]
    for source in (template(OBJECT), BODY.replace("CALL", ""), None):
        made, text = prompt(process, source, turns, [tool])
        assert text.count(words) >= 6
        assert [token for token in made.tokens if token >= 256] == []


@pytest.mark.parametrize(
    ("end", "thinking"), [("<think>\n", "<think>"), ("<think>\n\n</think>\n\n", ""), ("", "")]
)
def test_thinking_that_a_prompt_opens_is_told(
    process: TemplateProcess, end: str, thinking: str
) -> None:
    source = template(OBJECT) + "{{ " + repr(end) + " }}"
    assert prompt(process, source, ASKED)[0].form == ReplyForm(ToolForm.HERMES, thinking)
    assert prompt(process, source, ASKED, ())[0].form == ReplyForm(None, thinking)


class Counting(ChatmlHere):
    """Writes all that it is given."""

    def render(self, variables: dict[str, Any], max_chars: int) -> dict[str, str]:
        del max_chars
        return {"text": json.dumps(variables)}


def test_how_a_template_takes_tools_is_tried_once() -> None:
    counting = Counting()
    made = ChatTemplate(ByteTokenizer("tools <tool_call>"), cast("TemplateProcess", counting))
    made.prompt(ASKED, [TOOL])
    first = counting.opened_for
    made.prompt(ASKED, [TOOL])
    assert first > 2
    assert counting.opened_for == first + 1
