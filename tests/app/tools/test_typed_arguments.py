"""Arguments come back as they were: random schemas, values and cuts, in every form of a call."""

import json
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app.tools.events import TextDelta, ToolArguments, ToolCallBegun
from app.tools.reply_splitter import ReplySplitter
from backends.chat.message import Tool
from backends.chat.reply_form import ReplyForm, ToolForm

texts = st.one_of(
    st.sampled_from(["", "null", "None", "true", "True", "5", "03106", "-1.5e3", "{}", "[1]"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(
        lambda text: not any(mark in text for mark in ("</", "<p"))
    ),
)  # fmt: skip
numbers = st.one_of(
    st.integers(-(10**30), 10**30), st.floats(allow_nan=False, allow_infinity=False)
)
scalars = st.one_of(texts, numbers, st.booleans(), st.none())
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": texts,
    "integer": st.integers(-(10**30), 10**30),
    "boolean": st.booleans(),
    "null": st.none(),
    "array": st.lists(scalars, max_size=3),
    "object": st.dictionaries(texts, scalars, max_size=3),
}
values = st.one_of(*VALUES.values(), numbers)
schemas = st.one_of(
    st.sampled_from([{"type": kind} for kind in [*VALUES, "number"]]),
    st.lists(st.sampled_from(list(VALUES)), min_size=1, unique=True).map(
        lambda kinds: {"type": kinds}
    ),
    st.sampled_from([*combinations(VALUES, 2)]).map(
        lambda kinds: {"oneOf": [{"type": kind} for kind in kinds]}
    ),
    st.lists(scalars, min_size=1, max_size=4).map(lambda items: {"enum": items}),
    scalars.map(lambda item: {"const": item}),
)
schemas = st.recursive(
    schemas,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"allOf": parts}),
        inner.map(lambda part: {"allOf": [part], "description": "pydantic writes this"}),
    ),
    max_leaves=4,
)


@st.composite
def tools(draw: st.DrawFn) -> tuple[Tool, Any, dict[str, Any]]:
    """A tool, its parameters' schema, and arguments; schemas stand in place or are referred to."""
    names = draw(st.lists(st.sampled_from("abcdé"), min_size=1, max_size=3, unique=True))
    drawn = {name: draw(schemas) for name in names}
    definitions = {f"{name}/~": schema for name, schema in drawn.items()}
    referred = {name: {"$ref": f"#/$defs/{name}~1~0"} for name in names}
    where = draw(st.sampled_from(["in place", "referred", "all referred", "merged"]))
    schema: dict[str, Any] = {"type": "object", "properties": drawn}
    if where != "in place":
        schema = {"type": "object", "properties": referred, "$defs": definitions}
    if where == "all referred":
        schema = {"$ref": "#/$defs/all", "$defs": {**definitions, "all": schema}}
    if where == "merged":
        parts = [{"properties": {name: part}} for name, part in referred.items()]
        schema = {"allOf": parts, "$defs": definitions}
    told = {name: draw(values) for name in draw(st.permutations(names))}
    valid = {name: value for name, value in told.items() if allows(drawn[name], value)}
    return Tool("call_it", parameters=json.dumps(schema)), drawn, valid


def allows(schema: Any, value: Any) -> bool:
    return Draft202012Validator(schema).is_valid(value)


def in_tags(arguments: dict[str, Any], *, python: bool) -> tuple[str, dict[str, str]]:
    """A call as the template of Qwen3-Coder writes it, and each argument as it stands there."""
    written = {
        name: value
        if isinstance(value, str)
        else str(value)
        if python and not isinstance(value, list | dict)
        else json.dumps(value).replace("<", "\\u003c")
        for name, value in arguments.items()
    }
    body = "".join(f"<parameter={name}>\n{text}\n</parameter>\n" for name, text in written.items())
    return f"<function=call_it>\n{body}</function>", written


def read(text: str, form: ToolForm, tool: Tool, cuts: list[int]) -> list[Any]:
    """The arguments of each call in a reply, of which nothing is content."""
    splitter = ReplySplitter(ReplyForm(form), [tool])
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    events = [event for a, b in pairwise(places) for event in splitter.feed(TextDelta(text[a:b]))]
    events += splitter.finish()
    pieces: list[str] = []
    for event in events:
        assert isinstance(event, ToolCallBegun | ToolArguments), event
        if isinstance(event, ToolCallBegun):
            assert event.name == "call_it"
            pieces.append("")
        else:
            pieces[event.index] += event.text
    return [json.loads(piece) for piece in pieces]


def same(one: object, other: object) -> bool:
    """Whether two values are the same JSON: True is not 1, but 1.0 is."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


cuts = st.lists(st.integers(0, 10**6), max_size=8)


def meant(schema: Any, text: str, value: object) -> object:
    """What the text of an argument means, of which value alone is told where no text is allowed."""
    if text == "null" and allows(schema, None):
        return None
    return text if allows(schema, text) else value


def check_tags(
    tool: tuple[Tool, Any, dict[str, Any]], times: int, python: bool, at: list[int]
) -> None:
    offered, drawn, arguments = tool
    call, written = in_tags(arguments, python=python)
    expected = {name: meant(drawn[name], written[name], arguments[name]) for name in arguments}
    for inside in (f"<tool_call>\n{call}\n</tool_call>", call):
        told = read("\n".join([inside] * times), ToolForm.XML, offered, at)
        assert len(told) == times
        assert all(same(one, expected) for one in told), (told, expected)
    told = read(f"<tool_call>{call * times}</tool_call>", ToolForm.XML, offered, at)
    assert len(told) == times
    assert all(same(one, expected) for one in told), (told, expected)


JSON_CALLS = {
    "arguments": lambda a: f'{{"name": "call_it", "arguments": {json.dumps(a)}}}',
    "parameters": lambda a: f'{{"name": "call_it", "parameters": {json.dumps(a)}}}',
    "more keys": lambda a: f'{{"name":"call_it","arguments":{json.dumps(a)},"id":"}}x"}}',
    "first": lambda a: f'{{"arguments": {json.dumps(a, ensure_ascii=False)}, "name": "call_it"}}',
    "as text": lambda a: json.dumps({"name": "call_it", "arguments": json.dumps(a)}),
    "nested": lambda a: f'{{"function": {{"name": "call_it", "arguments": {json.dumps(a)}}}}}',
}  # fmt: skip


def replies(form: ToolForm, call: str, times: int) -> list[str]:
    """Replies that make a call so many times, in each way that models of this form write them."""
    array = f"[{', '.join([call] * times)}]"
    lines, semicolons = "\n".join([call] * times), "; ".join([call] * times)
    if form in (ToolForm.HERMES, ToolForm.XML):
        each = "\n".join([f"<tool_call>\n{call}\n</tool_call>"] * times)
        return [each, *(f"<tool_call>{body}</tool_call>" for body in (array, lines, semicolons))]
    if form is ToolForm.MISTRAL:
        return [f"[TOOL_CALLS]{array}", f"[TOOL_CALLS] {lines}"]
    if form is ToolForm.LLAMA:
        return [lines, semicolons, f"<|python_tag|>{semicolons}", f"<|python_tag|>{array}"]
    return [array, lines, f"```json\n{array}\n```"]


def check_json(
    tool: tuple[Tool, Any, dict[str, Any]], times: int, style: str, at: list[int]
) -> None:
    offered, _, arguments = tool
    for form in ToolForm:
        for reply in replies(form, JSON_CALLS[style](arguments), times):
            told = read(reply, form, offered, at)
            assert len(told) == times, (form, reply)
            assert all(same(one, arguments) for one in told), (form, reply)
    named = f"[TOOL_CALLS]call_it[ARGS]{json.dumps(arguments)}" * times
    assert all(same(one, arguments) for one in read(named, ToolForm.MISTRAL, offered, at))


times = st.integers(1, 3)
styles = st.sampled_from(list(JSON_CALLS))


@settings(max_examples=60)
@given(tools(), times, st.booleans(), styles, cuts)
def test_arguments_come_back_as_they_were(
    tool: tuple[Tool, Any, dict[str, Any]], times: int, python: bool, style: str, at: list[int]
) -> None:
    check_tags(tool, times, python, at)
    check_json(tool, times, style, at)


@pytest.mark.nightly
@settings(max_examples=20_000)
@given(tools(), times, st.booleans(), styles, cuts)
def test_arguments_come_back_as_they_were_many(
    tool: tuple[Tool, Any, dict[str, Any]], times: int, python: bool, style: str, at: list[int]
) -> None:
    check_tags(tool, times, python, at)
    check_json(tool, times, style, at)


OPTIONAL = {"anyOf": [{"type": "string"}, {"type": "null"}]}
CIRCLE = {"anyOf": [{"$ref": "#/properties/x"}, {"type": "integer"}]}
BOMB: Any = {
    "properties": {"x": {"$ref": "#/$defs/0"}},
    "$defs": {
        str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}, {"allOf": [{"$ref": f"#/$defs/{n + 1}"}]}]}
        for n in range(60)
    }
    | {"60": {"type": "string"}},
}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (OPTIONAL, "5", "5"),
        (OPTIONAL, "true", "true"),
        (OPTIONAL, "None", "None"),
        (OPTIONAL, "null", None),
        (OPTIONAL, "nullable", "nullable"),
        ({"type": "string"}, "null", "null"),
        ({"type": "string", "nullable": True}, "null", None),
        ({"enum": ["null", None]}, "null", None),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "None", None),
        ({"type": ["string", "integer"]}, "5", "5"),
        ({"enum": [1, 2, "auto"]}, "1", 1),
        ({"enum": [1, 2, "auto"]}, "auto", "auto"),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"pattern": "^[0-9]{5}$"}, "03106", "03106"),
        ({"minLength": 1}, "12", "12"),
        ({}, "5", 5),
        ({}, "five", "five"),
        (True, "5", 5),
        (CIRCLE, "5", 5),
        ({"$ref": "#/nowhere/0"}, "5", 5),
        ({"$ref": "https://example.org/x"}, "5", 5),
        ({"type": "integer"}, "five", "five"),
        ({"type": "number"}, "NaN", "NaN"),
        ({"type": "number"}, "[Infinity]", "[Infinity]"),
    ],
)  # fmt: skip
def test_an_argument_is_of_the_type_that_its_schema_says(
    schema: object, text: str, value: object
) -> None:
    assert same(read_argument({"properties": {"x": schema}}, text), value)


def read_argument(schema: object, text: str) -> object:
    tool = Tool("call_it", parameters=json.dumps(schema))
    call = f"<function=call_it><parameter=x>\n{text}\n</parameter></function>"
    (arguments,) = read(call, ToolForm.XML, tool, [*range(len(call))])
    return arguments["x"]


def test_further_arguments_and_references_that_multiply_are_read_at_once() -> None:
    assert read_argument({"additionalProperties": {"type": "string"}}, "5") == "5"
    assert read_argument(BOMB, "5") == "5"


def test_a_text_is_streamed_as_soon_as_it_cannot_be_null() -> None:
    tool = Tool("call_it", parameters=json.dumps({"properties": {"x": OPTIONAL}}))
    splitter = ReplySplitter(ReplyForm(ToolForm.XML), [tool])
    list(splitter.feed(TextDelta("<function=call_it><parameter=x>nul")))
    assert list(splitter.feed(TextDelta("ls"))) == [ToolArguments(0, '"nulls')]
    assert list(splitter.feed(TextDelta(" and"))) == [ToolArguments(0, " and")]


def test_what_is_no_object_of_arguments_is_not_left_out() -> None:
    for arguments in ('"word"', "[1]", "3"):
        text = f'<tool_call>{{"arguments": {arguments}, "name": "call_it"}}</tool_call>'
        splitter = ReplySplitter(ReplyForm(ToolForm.HERMES), [Tool("call_it")])
        events = [*splitter.feed(TextDelta(text)), *splitter.finish()]
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == text
