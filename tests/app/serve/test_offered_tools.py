"""Tools that programs offer, and the schema of a call that is required."""

import json

import pytest
from llguidance import LLMatcher, LLTokenizer

from app.chat.conversation import ReplyOptions
from app.serve.offered_tools import call_schema, offered_tools
from app.serve.refusal import RefusedError
from backends.chat.message import Tool
from decoding.constraint.grammar import Grammar, GrammarKind

TREE = Tool(
    "look_up",
    parameters=json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$id": "https://example.org/tree",
            "type": "object",
            "properties": {
                "word": {"$ref": "#/$defs/word"},
                "most": {"type": "integer"},
                "below": {"$ref": "#"},
            },
            "required": ["word", "most"],
            "additionalProperties": False,
            "$defs": {"word": {"type": "string", "maxLength": 4}},
        }
    ),
)
STOP = Tool("stop")
NODE = '{"word": "ox", "most": 3, "below": {"word": "cow", "most": 1}}'


def fits(text: str, tools: list[Tool]) -> bool:
    schema = json.dumps(call_schema(tools))
    tokenizer = LLTokenizer("byte")
    matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema))
    assert not matcher.get_error()
    tokens = tokenizer.tokenize_str(text)
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("text", "is_call"),
    [
        ('{"name": "look_up", "arguments": ' + NODE + "}", True),
        ('{"name": "stop", "arguments": {}}', True),
        ('{"name": "stop", "arguments": {"any": 1}}', True),
        ('{"name": "stop", "arguments": 1}', False),
        ('{"name": "stop"}', False),
        ('{"name": "fly", "arguments": {}}', False),
        ('{"name": "look_up", "arguments": {"word": "ox"}}', False),
        ('{"name": "look_up", "arguments": {"word": "oxens", "most": 3}}', False),
        ('{"name": "look_up", "arguments": {"word": "ox", "most": 3, "below": 1}}', False),
    ],
)
def test_a_required_call_has_a_name_and_arguments_of_its_schema(text: str, is_call: bool) -> None:
    assert fits(text, [STOP, TREE]) == is_call
    assert fits(text, [TREE]) == (is_call and "stop" not in text)


def test_what_is_required_limits_the_reply() -> None:
    options = ReplyOptions(stops=("x",))
    free = offered_tools([TREE, STOP]).options(options)
    assert (free.grammar, free.shows_control, free.stops) == (None, True, ("x",))
    assert offered_tools([TREE], "none").options(options) == options
    for choice, tools in (("required", [TREE, STOP]), ("named", [STOP])):
        offered = offered_tools([TREE, STOP], choice, "stop")
        schema = json.dumps(call_schema(tools))
        limited = ReplyOptions(grammar=Grammar(GrammarKind.JSON_SCHEMA, schema))
        assert offered.options(options) == limited  # a stop text would only cut the call


def nested(depth: int) -> Tool:
    return Tool("deep", parameters='{"a": ' * depth + "1" + "}" * depth)


MISTYPED = Tool("a", parameters='{"type": "objekt"}')


@pytest.mark.parametrize(
    "tools",
    [
        [Tool("")],
        [Tool("a b")],
        [Tool("é")],
        [TREE, TREE],
        [nested(100)],
        [STOP] * 1000,
        [MISTYPED],
    ],
)
def test_unusable_tools_are_refused(tools: list[Tool]) -> None:
    with pytest.raises(RefusedError) as refused:
        offered_tools(tools)
    assert refused.value.param.startswith("tools")
