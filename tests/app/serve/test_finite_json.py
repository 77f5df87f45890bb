"""Numbers that a model writes and JSON cannot hold cost no reply."""

import json

import pytest

pytest.importorskip("pydantic")

from app.serve.dialects.anthropic import MessageWriter
from app.tools.events import Begun, Ended, EndReason, ToolArguments, ToolCallBegun, Usage


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize("rest", ['"}', "", ' "b'])
def test_arguments_have_null_in_their_place(number: str, rest: str) -> None:
    arguments = f'{{"x": [{number}, 2.5], "y": "a{rest}'
    call = (ToolCallBegun(0, "id", "f"), ToolArguments(0, arguments))
    events = [Begun("m", 1, 0), *call, Ended(EndReason.TOOL_CALLS, Usage())]
    written = json.dumps(MessageWriter("m").body([events]), allow_nan=False)
    assert json.loads(written)["content"][0]["input"]["x"] == [None, 2.5]
