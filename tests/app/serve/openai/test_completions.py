"""Text completions: log probabilities, and figures of several choices."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.serve.dialects.completions import CompletionsRequest, CompletionsWriter
from app.serve.dialects.openai import timings_of
from app.tools.events import Alternative, Ended, EndReason, TextDelta, TokenLogprob, Usage


def test_a_character_in_two_tokens_shifts_nothing_behind_it() -> None:
    writer = CompletionsWriter("m", CompletionsRequest(prompt="", logprobs=1))
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


def top_of(*alternatives: Alternative) -> list[dict[str, float]]:
    writer = CompletionsWriter("m", CompletionsRequest(prompt="", logprobs=1))
    token = TokenLogprob(alternatives[0].data, alternatives[0].logprob, alternatives, 0, 1)
    (frame,) = writer.frames(0, TextDelta("x", (token,)))
    chunk: Any = frame.data
    return chunk["choices"][0]["logprobs"]["top_logprobs"]


def test_parts_of_characters_are_told_by_their_bytes() -> None:
    parts = [Alternative(n, bytes([0xE2, 0x80 + n]), -float(n)) for n in range(5)]
    assert top_of(*parts) == [{f"bytes:\\xe2\\x8{n}": -float(n) for n in range(5)}]


@given(st.lists(st.binary(max_size=2), min_size=1, max_size=20))
def test_no_alternative_is_lost_whatever_its_bytes(pieces: list[bytes]) -> None:
    told = top_of(*(Alternative(n, piece, -float(n)) for n, piece in enumerate(pieces)))
    assert list(told[0].values()) == [-float(n) for n in range(len(pieces))]


FIRST = Usage(10, 4, 12, 0, 0, 0, 0.5, 1.0, 11.0, 6, 3)
SECOND = Usage(10, 9, 8, 0, 0, 0, 0.25, 3.0, 2.0, 2, 1)
UNMEASURED = Usage(10, 9, 1)


def timings(*usages: Usage) -> dict[str, object]:
    return timings_of([Ended(EndReason.STOP, usage) for usage in usages])


def test_timings_are_those_of_all_choices() -> None:
    assert timings(FIRST, SECOND, UNMEASURED) == {
        "cache_n": 22,
        "prompt_n": 8,
        "prompt_ms": 750.0,
        "predicted_n": 21,
        "predicted_ms": 4000.0,
        "predicted_per_second": pytest.approx(17 / 4),
        "draft_n": 8,
        "draft_n_accepted": 4,
    }


def test_what_was_not_measured_is_null() -> None:
    told = timings(UNMEASURED)
    assert (told["prompt_ms"], told["predicted_ms"], told["predicted_per_second"]) == (None,) * 3
    assert timings()["predicted_n"] == 0
