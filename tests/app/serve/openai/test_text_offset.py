"""Where tokens of a text completion stand in its text."""

import json
from typing import Any

from app.serve.openai.completions_writer import CompletionsWriter
from app.serve.reply_events import TextDelta, TokenLogprob


def test_a_character_in_two_tokens_shifts_nothing_behind_it() -> None:
    writer = CompletionsWriter("m", choices=1, includes_usage=False, has_logprobs=True)
    tokens = (
        TokenLogprob(b"\xc3", -1.0, (), 0, 0),
        TokenLogprob(b"\xa9", -1.0, (), 0, 1),
        TokenLogprob(b"a", -1.0, (), 1, 2),
    )
    offsets: list[int] = []
    for part, text in ((tokens[:2], "\u00e9"), (tokens[2:], "a")):
        for frame in writer.frames(0, TextDelta(text, part)):
            chunk: Any = json.loads(frame.data) if isinstance(frame.data, str) else frame.data
            offsets += chunk["choices"][0]["logprobs"]["text_offset"]
    assert offsets == [0, 0, 1]
