"""Replies split into content, reasoning and calls: the same events, however the text is cut."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.tools.events import (
    Alternative,
    Delta,
    ReasoningDelta,
    TextDelta,
    TokenLogprob,
    ToolArguments,
    ToolCallBegun,
)
from app.tools.reply_splitter import ReplySplitter
from backends.chat.message import Tool
from backends.chat.reply_form import PLAIN, ReplyForm, ToolForm

TOOLS = [
    Tool(
        "look_up",
        "Look something up.",
        '{"type": "object", "properties": {"word": {"type": "string"}, "most": {"type":'
        ' "integer"}, "deep": {"type": "boolean"}}}',
    ),
    Tool("stop"),
]
Told = tuple[str, ...]
"""An event in short: (kind, text), or (call, name, arguments)."""


def told(events: Iterable[Delta]) -> list[Told]:
    """Events with neighbours of one kind joined, a call with its arguments."""
    found: list[Told] = []
    for event in events:
        match event:
            case ToolCallBegun(_, id, name):
                assert len(id) == 9
                found.append(("call", name, ""))
            case ToolArguments(index, text):
                assert index == sum(kind[0] == "call" for kind in found) - 1
                kind, name, before = found.pop()
                found.append((kind, name, before + text))
            case TextDelta(text) | ReasoningDelta(text):
                kind = "text" if isinstance(event, TextDelta) else "thought"
                before = found.pop()[1] if found and found[-1][0] == kind else ""
                found.append((kind, before + text))
    return [item for item in found if item != ("text", "")]


def split(
    pieces: Sequence[str],
    form: ToolForm | None,
    thinking: str = "",
    most: int | None = None,
    *,
    has_thinking: bool = True,
    is_call: bool = False,
) -> list[Told]:
    splitter = ReplySplitter(
        ReplyForm(form, thinking), TOOLS, most, has_thinking=has_thinking, is_call=is_call
    )
    events = [event for piece in pieces for event in splitter.feed(TextDelta(piece))]
    events += splitter.finish()
    result = told(events)
    assert splitter.has_calls == any(kind[0] == "call" for kind in result)
    return result


CALL = '{"name": "look_up", "arguments": {"word": "a } \\" b"}}'
LOOKED = ("call", "look_up", '{"word": "a } \\" b"}')
XML = """<function=look_up>
<parameter=word>
no </way>

</parameter>
<parameter=most>
3
</parameter>
<parameter=deep>
True
</parameter>
</function>"""
LOOKED_XML = ("call", "look_up", '{"word": "no </way>\\n", "most": 3, "deep": true}')

REPLIES: dict[str, tuple[ToolForm | None, str, list[Told]]] = {
    "plain": (None, " Hello <b>\n", [("text", " Hello <b>\n")]),
    "thinking": (
        None,
        "\n<think>\nHm, </b> \n</think>\n\nYes. ",
        [("thought", "Hm, </b>"), ("text", "Yes. ")],
    ),
    "nothing thought": (ToolForm.HERMES, "<think>\n\n</think>\n\nYes.", [("text", "Yes.")]),
    "other thinking": (None, "[THINK]Hm[/THINK]Yes.", [("thought", "Hm"), ("text", "Yes.")]),
    "thinking later is text": (None, "See <think>x</think>", [("text", "See <think>x</think>")]),
    "no tools, no calls": (
        None, f"<tool_call>{CALL}</tool_call>", [("text", f"<tool_call>{CALL}</tool_call>")]
    ),
    "hermes": (
        ToolForm.HERMES,
        f"<think>I look.</think>\nI look it up.\n\n<tool_call>\n{CALL}\n</tool_call>\n",
        [("thought", "I look."), ("text", "I look it up."), LOOKED],
    ),
    "hermes twice, then text": (
        ToolForm.HERMES,
        f"<tool_call>{CALL}</tool_call>\n<tool_call>\n{CALL}</tool_call> Done. ",
        [LOOKED, LOOKED, ("text", "Done. ")],
    ),
    "hermes with an unknown name": (
        ToolForm.HERMES, '<tool_call>{"name": "fly"}</tool_call>', [("call", "fly", "{}")]
    ),
    "hermes with arguments first": (
        ToolForm.HERMES,
        '<tool_call>{"arguments": {"n": [1]}, "name": "stop"}</tool_call>',
        [("call", "stop", '{"n": [1]}')],
    ),
    "hermes with arguments as text": (
        ToolForm.HERMES,
        '<tool_call>{"name": "stop", "arguments": "{\\"n\\": 1}"}</tool_call>',
        [("call", "stop", '{"n": 1}')],
    ),
    "hermes without the last bracket": (
        ToolForm.HERMES,
        '<tool_call>{"name": "stop", "arguments": {"n": 1}</tool_call>x',
        [("call", "stop", '{"n": 1}'), ("text", "x")],
    ),
    "hermes without the end of the tag": (
        ToolForm.HERMES, f"<tool_call>{CALL} <tool_call>{CALL}", [LOOKED, LOOKED]
    ),
    "hermes, cut": (
        ToolForm.HERMES,
        '<tool_call>{"name": "stop", "arguments": {"n": "a',
        [("call", "stop", '{"n": "a')],
    ),
    "a tag that is only named": (
        ToolForm.HERMES,
        "It writes <tool_call> and\n <tool_call>{x} </tool_call>",
        [("text", "It writes <tool_call> and\n <tool_call>{x} </tool_call>")],
    ),
    "a tag without a call": (
        ToolForm.HERMES,
        'A <tool_call>{"title": 1, "name": "stop", "arguments": {}}',
        [("text", 'A <tool_call>{"title": 1, "name": "stop", "arguments": {}}')],
    ),
    "xml": (
        ToolForm.XML,
        f"So: \n<tool_call>\n{XML}\n</tool_call>\n",
        [("text", "So:"), LOOKED_XML],
    ),
    "xml without the outer tag": (
        ToolForm.XML,
        f"So: {XML} {XML}\nDone",
        [("text", "So:"), LOOKED_XML, LOOKED_XML, ("text", "Done")],
    ),
    "xml without arguments": (
        ToolForm.XML, "<tool_call><function=stop></function></tool_call>", [("call", "stop", "{}")]
    ),
    "xml without the end of a parameter": (
        ToolForm.XML,
        "<tool_call><function=f><parameter=a>1<parameter=b>x</function></tool_call>",
        [("call", "f", '{"a": 1, "b": "x"}')],
    ),
    "json in the tag of xml": (ToolForm.XML, f"<tool_call>{CALL}</tool_call>", [LOOKED]),
    "xml that is only named": (
        ToolForm.XML,
        "See <function=> and <tool_call> <function=a\n",
        [("text", "See <function=> and <tool_call> <function=a\n")],
    ),
    "llama": (
        ToolForm.LLAMA,
        '\n{"name": "look_up", "parameters": {"word": "x"}}',
        [("call", "look_up", '{"word": "x"}')],
    ),
    "llama with a type": (
        ToolForm.LLAMA,
        '{"type": "function", "name": "stop", "parameters": {"n": 1.5}}\n',
        [("call", "stop", '{"n": 1.5}')],
    ),
    "llama, several": (ToolForm.LLAMA, f"{CALL}; {CALL}", [LOOKED, LOOKED]),
    "llama, python": (
        ToolForm.LLAMA, f"I look.<|python_tag|>{CALL}", [("text", "I look."), LOOKED]
    ),
    "llama, python code": (
        ToolForm.LLAMA, "<|python_tag|>print(1)", [("text", "<|python_tag|>print(1)")]
    ),
    "llama, json": (
        ToolForm.LLAMA,
        '{"name": "Ann", "parameters": {}}',
        [("text", '{"name": "Ann", "parameters": {}}')],
    ),
    "mistral": (
        ToolForm.MISTRAL,
        'Wait. [TOOL_CALLS] [{"name": "stop", "arguments": {}, "id": "abc}defgh"}, '
        '{"name": "stop", "arguments": {"n": []}}]',
        [("text", "Wait."), ("call", "stop", "{}"), ("call", "stop", '{"n": []}')],
    ),
    "mistral, newer": (
        ToolForm.MISTRAL,
        '[TOOL_CALLS]stop[ARGS]{"n": 1}[TOOL_CALLS]look_up[CALL_ID]123456789[ARGS] {"word": "x"}',
        [("call", "stop", '{"n": 1}'), ("call", "look_up", '{"word": "x"}')],
    ),
    "mistral, only named": (
        ToolForm.MISTRAL, "As [TOOL_CALLS] go on {", [("text", "As [TOOL_CALLS] go on {")]
    ),
    "generic": (ToolForm.GENERIC, f" {CALL}\n", [LOOKED]),
    "generic, several": (
        ToolForm.GENERIC, f"[{CALL},\n{CALL}] And so on.", [LOOKED, LOOKED, ("text", "And so on.")]
    ),
    "generic in a block of code": (ToolForm.GENERIC, f"```json\n{CALL}\n```\n", [LOOKED]),
    "another block of code": (
        ToolForm.GENERIC, "```\nx = {}\n```\n", [("text", "```\nx = {}\n```\n")]
    ),
    "generic, nested": (
        ToolForm.GENERIC,
        '{"function": {"name": "stop", "arguments": {"n": 1}}}',
        [("call", "stop", '{"n": 1}')],
    ),
    "an answer in json": (
        ToolForm.GENERIC,
        '[{"name": "x", "arguments": 3}, 4]',
        [("text", '[{"name": "x", "arguments": 3}, 4]')],
    ),
    "an unknown function": (
        ToolForm.GENERIC,
        '{"name": "x", "arguments": {}}',
        [("text", '{"name": "x", "arguments": {}}')],
    ),
    "a tool's name alone": (ToolForm.GENERIC, '{"name": "stop"}', [("text", '{"name": "stop"}')]),
    "a call in mid text": (ToolForm.GENERIC, f"Say {CALL}", [("text", f"Say {CALL}")]),
    "an open bracket": (ToolForm.GENERIC, '[{"name"', [("text", '[{"name"')]),
}  # fmt: skip


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_split(name: str) -> None:
    form, text, expected = REPLIES[name]
    assert split([text], form) == expected


@pytest.mark.parametrize("name", REPLIES)
def test_any_two_pieces_and_single_characters_give_the_same_events(name: str) -> None:
    form, text, expected = REPLIES[name]
    assert split(list(text), form) == expected
    for at in range(len(text)):
        assert split([text[:at], "", text[at:]], form) == expected, text[:at]


fragments = st.sampled_from(
    [
        "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=look_up>",
        "<parameter=word>", "</parameter>", "</function>", "[TOOL_CALLS]", "[ARGS]",
        "<|python_tag|>", "look_up", "```", "json", '{"name": "stop", ',
        '"arguments": {', '"parameters": ', '"id": "x"', CALL, "{", "}",
        "[", "]", ", ", "; ", '"', "\\", " ", "\n", "a", "é", "<", "stop[ARGS]{", "<function=", ">",
    ]
)  # fmt: skip
forms = st.sampled_from([*ToolForm, None])


@pytest.mark.slow
@settings(max_examples=500)
@given(
    st.lists(fragments, max_size=10).map("".join),
    forms,
    st.sampled_from(["", "<think>"]),
    st.data(),
)
def test_the_events_do_not_depend_on_the_cuts(
    text: str, form: ToolForm | None, thinking: str, data: st.DataObject
) -> None:
    whole = split([text], form, thinking)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
    pieces = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
    assert split(pieces, form, thinking) == whole
    assert split(list(text), form, thinking) == whole


@settings(max_examples=200)
@given(st.lists(fragments, max_size=10).map("".join), forms)
def test_without_calls_and_thinking_the_content_is_the_text(
    text: str, form: ToolForm | None
) -> None:
    result = split(list(text), form, has_thinking=False)
    if not any(kind[0] == "call" for kind in result):
        assert result == ([("text", text)] if text else [])


def test_arguments_come_while_they_are_written() -> None:
    splitter = ReplySplitter(ReplyForm(ToolForm.HERMES), TOOLS)
    begun = list(splitter.feed(TextDelta('<tool_call>{"name": "stop", "arguments": {"n')))
    assert isinstance(begun[0], ToolCallBegun)
    assert begun[1:] == [ToolArguments(0, '{"n')]
    assert list(splitter.feed(TextDelta('": 1'))) == [ToolArguments(0, '": 1')]


def test_text_is_not_held_back_longer_than_it_may_begin_a_call() -> None:
    splitter = ReplySplitter(ReplyForm(ToolForm.HERMES), TOOLS)
    assert list(splitter.feed(TextDelta("a <tool"))) == [TextDelta("a")]
    assert list(splitter.feed(TextDelta("s b"))) == [TextDelta(" <tools b")]


def test_thinking_that_the_prompt_opened_ends_in_the_reply() -> None:
    for text in ("Hm.\n</think>\n\nYes.", "<think>\nHm.\n</think>Yes."):
        expected = [("thought", "Hm."), ("text", "Yes.")]
        assert split([text], None, "<think>") == split(list(text), None, "<think>") == expected
    assert split(["Hm. "], None, "<think>") == [("thought", "Hm. ")]


@pytest.mark.parametrize(
    ("text", "length"), [("<think>ab</think>\n\ncd", 19), ("abc", 0), ("<think>ab", 9)]
)
def test_the_length_of_the_reasoning_is_known(text: str, length: int) -> None:
    for pieces in ([text], list(text)):
        splitter = ReplySplitter(ReplyForm())
        for piece in pieces:
            list(splitter.feed(TextDelta(piece)))
        list(splitter.finish())
        assert splitter.reasoning_length == length


def test_a_reply_that_continues_text_does_not_think() -> None:
    text = "<think>a</think>"
    assert split([text], None, "<think>", has_thinking=False) == [("text", text)]


@pytest.mark.parametrize("form", [ToolForm.HERMES, ToolForm.GENERIC])
def test_after_the_last_call_that_is_allowed_nothing_follows(form: ToolForm) -> None:
    tag = "<tool_call>" if form is ToolForm.HERMES else ""
    text = f"{tag}{CALL} {tag}{CALL} so"
    assert split([text], form, most=1) == split(list(text), form, most=1) == [LOOKED]


def test_log_probabilities_go_with_the_content() -> None:
    first = TokenLogprob(b"a", -1.0, (Alternative(98, b"b", -2.0),), 0, 1)
    second, third = TokenLogprob(b"<", -0.5, (), 1, 2), TokenLogprob(b"c", -0.1, (), 2, 3)
    splitter = ReplySplitter(ReplyForm(ToolForm.HERMES), TOOLS)
    assert list(splitter.feed(TextDelta("a", (first,)))) == [TextDelta("a", (first,))]
    assert list(splitter.feed(TextDelta("<", (second,)))) == []
    assert list(splitter.feed(TextDelta("c", (third,)))) == [TextDelta("<c", (second, third))]
    assert list(splitter.finish()) == []


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_log_probabilities_go_with_the_content_that_their_tokens_stand_in(size: int) -> None:
    text = "<think>ok</think>\n\nHello there"
    tokens = [
        TokenLogprob(part.encode(), -1.0, (), begin, begin + len(part))
        for begin in range(0, len(text), size)
        if (part := text[begin : begin + size])
    ]
    expected = [token for token in tokens if token.end > text.index("Hello")]
    for together in (1, len(tokens)):
        splitter = ReplySplitter(PLAIN, ())
        events: list[Delta] = []
        for first in range(0, len(tokens), together):
            some = tokens[first : first + together]
            events += splitter.feed(TextDelta(text[some[0].begin : some[-1].end], tuple(some)))
        events += splitter.finish()
        content = [event for event in events if isinstance(event, TextDelta)]
        assert "".join(event.text for event in content) == "Hello there"
        assert [token for event in content for token in event.logprobs] == expected


def test_of_a_required_call_nothing_is_content_wherever_it_is_cut() -> None:
    named = CALL.index(",")
    begun = CALL.index('{"word')
    for end in range(len(CALL)):
        arguments = CALL[begun:end]
        expected = [("call", "look_up", arguments)] if end >= named else []
        for pieces in ([CALL[:end]], list(CALL[:end])):
            assert split(pieces, ToolForm.GENERIC, is_call=True) == expected, CALL[:end]
    assert split([CALL], ToolForm.GENERIC, is_call=True) == [LOOKED]
    whole = [("text", CALL[:named])]
    assert split([CALL[:named]], ToolForm.GENERIC) == whole  # where it may be an answer in JSON
