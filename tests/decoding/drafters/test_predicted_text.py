"""What a predicted text proposes, and that it finds its place again after a deviation."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.draft import MOST_DRAFTED
from decoding.drafters.predicted_text import PredictedText
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler

SAMPLER = Sampler(SamplingSettings())
PROMPT = [900, 901, 902]
FILE = list(range(100, 200))
common = settings(max_examples=200)
texts = st.lists(st.integers(0, 3), max_size=40)


def after(predicted: Sequence[int], reply: Sequence[int], limit: int = 4) -> list[int]:
    """What is proposed after a reply that came a token at a time."""
    drafter = PredictedText(predicted, len(PROMPT))
    drafter.begin(PROMPT, SAMPLER)
    for count in range(1, len(reply) + 1):
        drafter.propose([*PROMPT, *reply[: count - 1]], limit)
        drafter.commit([*PROMPT, *reply[:count]])
    return list(drafter.propose([*PROMPT, *reply], limit).tokens)


def test_it_begins_at_its_start_and_goes_on_while_it_is_right() -> None:
    assert after(FILE, []) == [100, 101, 102, 103]
    assert after(FILE, FILE[:7]) == [107, 108, 109, 110]
    assert after(FILE, FILE) == []


@pytest.mark.parametrize(
    ("kind", "edited"),
    [
        ("replaced", [*FILE[:20], 1, *FILE[21:23]]),
        ("replaced by as many", [*FILE[:20], 1, 2, 3]),
        ("replaced by more", [*FILE[:20], 1, 2, 3, 4, *FILE[21:23]]),
        ("inserted", [*FILE[:23], 1, 2, *FILE[23:23]]),
        ("left out", [*FILE[:10], *FILE[20:23]]),
        ("moved", [*FILE[50:60], *FILE[:23]]),
        ("begun with other text", [1, 2, 3, *FILE[:23]]),
    ],
)
def test_after_an_edit_it_finds_its_place_again(kind: str, edited: list[int]) -> None:
    proposed = after(FILE, [*edited, 123] if kind == "inserted" else edited)
    assert proposed == ([124, 125, 126, 127] if kind == "inserted" else [123, 124, 125, 126])


def test_of_equal_matches_the_one_just_after_its_place_counts() -> None:
    line = [1, 2, 3]
    predicted = [*line, 10, 11, *line, 20, 21, 22, 23, *line, 30, 31, *line, 40]
    reply = [*line, 10, 11, *line, 20, 21, 22, 23, 99]
    assert after(predicted, [*reply, 2, 3], limit=1) == [30]
    assert after(predicted, [*reply, 1], limit=3) == [2, 3, 30]


def test_where_nothing_follows_its_place_an_earlier_match_counts() -> None:
    predicted = [*FILE, 1, 2, 3]
    assert after(predicted, [*FILE, 99, 105, 106, 107]) == [108, 109, 110, 111]


def test_a_longer_match_goes_before_a_nearer_one() -> None:
    predicted = [1, 2, 3, 4, 5, 50, 7, 8, 60, 6, 7, 8, 70]
    assert after(predicted, [1, 2, 3, 4, 99, 6, 7, 8], limit=1) == [70]
    assert after(predicted, [1, 2, 3, 4, 99, 7, 8], limit=1) == [60]


def test_it_is_surer_the_longer_it_was_right() -> None:
    drafter = PredictedText(FILE, len(PROMPT))
    drafter.begin(PROMPT, SAMPLER)
    first = drafter.propose(PROMPT, 30)
    assert list(first.confidence[1:]) == sorted(first.confidence[1:])
    drafter.commit([*PROMPT, 1])
    lost = drafter.propose([*PROMPT, 1], 1)
    assert lost.confidence[0] < first.confidence[0]
    assert lost.evidence[0] != first.evidence[0], "its start is like no other place"


def test_guessed_tokens_leave_no_trace() -> None:
    drafter = PredictedText(FILE, len(PROMPT))
    drafter.begin(PROMPT, SAMPLER)
    drafter.commit([*PROMPT, *FILE[:8]])
    assert drafter.propose([*PROMPT, *FILE[:8], *FILE[50:60]], 1).tokens == (160,)
    assert drafter.propose([*PROMPT, *FILE[:8]], 1).tokens == (108,)


def test_a_second_beginning_keeps_its_place() -> None:
    """Drafters that are changed in mid-reply begin again; this one goes on with the reply."""
    drafter = PredictedText(FILE, len(PROMPT))
    drafter.begin([*PROMPT, *FILE[:9]], SAMPLER)
    assert drafter.propose([*PROMPT, *FILE[:9]], 2).tokens == (109, 110)
    drafter.begin([*PROMPT, *FILE[:12]], SAMPLER)
    assert drafter.propose([*PROMPT, *FILE[:12]], 2).tokens == (112, 113)


def test_another_reply_begins_at_the_start_of_the_text() -> None:
    drafter = PredictedText(FILE, len(PROMPT))
    drafter.begin([*PROMPT, *FILE[:9]], SAMPLER)
    drafter.begin(PROMPT, SAMPLER)
    assert drafter.propose(PROMPT, 2).tokens == (100, 101)


@pytest.mark.parametrize("predicted", [[], [5], [5] * 5000, FILE * 50])
def test_drafts_are_bounded(predicted: list[int]) -> None:
    for reply in ([], [5], [5] * 300, [7] * 10):
        assert len(after(predicted, reply, limit=1000)) <= MOST_DRAFTED
        assert after(predicted, reply, limit=0) == []


@common
@given(texts, texts, st.integers(0, 9))
def test_a_draft_is_part_of_the_text_and_follows_the_longest_match(
    predicted: list[int], reply: list[int], limit: int
) -> None:
    proposed = after(predicted, reply, limit)
    places = [
        place
        for place in range(len(predicted))
        if predicted[place : place + len(proposed)] == proposed
    ]
    assert len(proposed) <= limit
    assert not proposed or places
    longest = max(
        (
            length
            for length in range(1, len(reply) + 1)
            for place in range(length, len(predicted) + 1)
            if predicted[place - length : place] == reply[-length:]
        ),
        default=0,
    )
    if proposed and longest:  # at least so much of it, once it has settled anywhere
        assert any(
            predicted[place - least : place] == reply[-least:]
            for place in places
            for least in (min(longest, 4),)
            if place >= least
        )


@common
@given(texts, texts)
def test_what_it_proposes_depends_on_the_reply_alone(
    predicted: list[int], reply: list[int]
) -> None:
    at_once = PredictedText(predicted, len(PROMPT))
    at_once.begin([*PROMPT, *reply], SAMPLER)
    assert list(at_once.propose([*PROMPT, *reply], 4).tokens) == after(predicted, reply)
