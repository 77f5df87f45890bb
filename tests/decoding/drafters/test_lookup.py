"""Lookup against brute force: longest earlier match, latest occurrence."""

import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, SupportsIndex

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.draft import MOST_DRAFTED
from decoding.drafters.lookup import PromptLookup
from decoding.sampling.distribution import SamplingSettings
from decoding.sampling.sampler import Sampler

common = settings(max_examples=200)


def texts(n_tokens: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, n_tokens - 1), max_size=60)


def longest_match(text: Sequence[int]) -> tuple[int, int]:
    """Length of the longest suffix that ended earlier too, and the last place where it did."""
    best, best_end = 0, 0
    for end in range(1, len(text)):
        size = 0
        while size < end and text[end - 1 - size] == text[-1 - size]:
            size += 1
        if size > 0 and size >= best:
            best, best_end = size, end
    return best, best_end


SAMPLER = Sampler(SamplingSettings())


def check(text: Sequence[int]) -> None:
    """A draft goes on after the longest match, as the text grows token by token."""
    lookup = PromptLookup(min_match=1)
    lookup.begin([], SAMPLER)
    for position in range(len(text)):
        history = list(text[: position + 1])
        lookup.commit(history)
        length, end = longest_match(history)
        continued = [*history, *lookup.propose(history, 3).tokens]
        assert len(continued) - len(history) == (3 if length else 0)
        assert (
            continued[len(history) :] == continued[end : end + 3][: len(continued) - len(history)]
        )


@common
@given(st.integers(2, 4).flatmap(texts))
def test_the_match_is_that_of_brute_force(text: list[int]) -> None:
    check(text)


@common
@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(2, 10))
def test_periodic_text_matches_across_its_own_end(period: list[int], times: int) -> None:
    check((period * times)[:60])


@common
@given(texts(3), texts(3), texts(3))
def test_repeated_pieces_with_different_surroundings_are_found(
    piece: list[int], one: list[int], other: list[int]
) -> None:
    check([*one[:9], *piece[:20], 7, *piece[:20], 8, *other[:9], *piece[:20]])


def test_tokens_of_any_value_are_told_apart() -> None:
    check([0, 2**31 - 1, 151_935, 0, 2**31 - 1, 5, 0, 2**31 - 1, 151_935])


@common
@given(texts(3), texts(3))
def test_the_match_after_more_tokens_is_brute_force_too(text: list[int], more: list[int]) -> None:
    """Of occurrences that end before these tokens, which are not learned."""
    lookup = PromptLookup(min_match=1)
    lookup.begin(text, SAMPLER)
    for count in range(1, len(more) + 1):
        longer = text + more[:count]
        ends = range(1, len(text) + 1)
        sizes = [_common_end(longer, longer[:one]) for one in ends]
        size = max(sizes, default=0)
        drafted = lookup.propose(longer, 2).tokens
        assert bool(drafted) == (size > 0)
        if size:
            end = max(one for one in ends if sizes[one - 1] == size)
            assert drafted == tuple([*longer, *drafted][end : end + 2])


def _common_end(one: Sequence[int], other: Sequence[int]) -> int:
    size = 0
    while size < min(len(one), len(other)) and one[-1 - size] == other[-1 - size]:
        size += 1
    return size


def proposal(history: Sequence[int], limit: int = 100, **options: int) -> list[int]:
    lookup = PromptLookup(**options)
    lookup.begin(history, SAMPLER)
    return list(lookup.propose(history, limit).tokens)


def test_text_that_repeats_itself_is_continued_past_its_end() -> None:
    assert proposal([1, 2, 3] * 4, limit=8) == [1, 2, 3, 1, 2, 3, 1, 2]
    assert proposal([5] * 4) == [5] * MOST_DRAFTED


@common
@given(
    st.lists(st.integers(0, 2), max_size=50),
    st.integers(0, 9),
    st.integers(1, 4),
    st.integers(1, 9),
)
def test_a_draft_continues_the_longest_match(
    history: list[int], limit: int, min_match: int, max_draft: int
) -> None:
    length, end = longest_match(history)
    drafted = proposal(history, limit, min_match=min_match, max_draft=max_draft)
    assert len(drafted) == (min(limit, max_draft) if length >= min_match else 0)
    continued = [*history, *drafted]
    assert drafted == continued[end : end + len(drafted)]


def test_a_draft_bears_its_name_and_was_drawn_from_nothing() -> None:
    lookup = PromptLookup()
    lookup.begin([1, 2, 3, 4, 1, 2, 3], SAMPLER)
    draft = lookup.propose([1, 2, 3, 4, 1, 2, 3], 2)
    assert (lookup.name, lookup.is_free, lookup.backlog([1, 2])) == ("lookup", True, 0)
    assert (draft.drafter, draft.is_sampled) == ("lookup", False)


@common
@given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 20))
def test_the_longer_the_match_the_more_is_expected_of_a_token(
    history: list[int], limit: int
) -> None:
    lookup = PromptLookup(min_match=1)
    lookup.begin(history, SAMPLER)
    draft = lookup.propose(history, limit)
    assert len(draft.confidence) == len(draft.evidence) == len(draft)
    assert list(draft.evidence) == sorted(draft.evidence)
    assert list(draft.confidence) == sorted(draft.confidence)
    assert all(0.0 < chance < 1.0 for chance in draft.confidence)
    same = dict(zip(draft.evidence, draft.confidence, strict=True))
    assert [same[one] for one in draft.evidence] == list(draft.confidence)


def test_evidence_follows_the_match_as_it_would_grow() -> None:
    """A token three into a draft on a match of 2 is judged only when 5 tokens matched."""
    lookup = PromptLookup()
    lookup.begin([1, 2, 3, 4, 5, 6, 7, 8, 1, 2], SAMPLER)
    short = lookup.propose([1, 2, 3, 4, 5, 6, 7, 8, 1, 2], 6)
    grown = PromptLookup()
    grown.begin([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5], SAMPLER)
    longer = grown.propose([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5], 3)
    assert short.tokens[3:] == longer.tokens
    assert short.evidence[3:] == longer.evidence


def test_a_reply_is_learnt_as_it_grows() -> None:
    lookup = PromptLookup()
    history = [1, 2, 3, 4, 9]
    lookup.begin(history, SAMPLER)
    history += [1, 2, 3]
    lookup.commit(history)
    assert lookup.propose(history, 2).tokens == (4, 9)


@pytest.mark.parametrize(
    "other", [[1, 2, 3, 4, 5, 1, 2, 3], [1, 2, 9, 9, 1, 2], [1, 2, 3], [1, 2, 3, 4, 1, 2], []]
)
def test_whatever_was_said_before_the_text_of_a_reply_alone_counts(other: list[int]) -> None:
    lookup = PromptLookup(min_match=2)
    lookup.begin([1, 2, 3, 4, 1, 2], SAMPLER)
    lookup.begin(other, SAMPLER)
    assert list(lookup.propose(other, 5).tokens) == proposal(other, 5, min_match=2)


class Watched(list[int]):
    """A list that counts the elements taken out of it, and is never copied whole."""

    taken = 0

    def __getitem__(self, key: SupportsIndex | slice) -> "int | list[int]":  # type: ignore[override]
        found = super().__getitem__(key)
        self.taken += len(found) if isinstance(found, list) else 1
        return found

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("a step goes through the whole history")


def test_a_step_after_100_000_tokens_touches_a_handful() -> None:
    generator = np.random.default_rng(0)
    prompt = generator.integers(0, 50, size=100_000).tolist()
    prompt[70_000:75_000] = [7] * 5000
    lookup = PromptLookup(max_draft=8)
    lookup.begin(prompt, SAMPLER)
    history = Watched(prompt)
    for token in prompt[1000:1200]:
        history.append(token)
        lookup.commit(history)
        lookup.propose(history, 8)
    assert history.taken <= 200 * (1 + 64 + 8)


def test_a_step_after_a_long_run_of_one_token_works_no_longer() -> None:
    lookup = PromptLookup()
    history = [7] * 20_000
    lookup.begin(history, SAMPLER)
    lines = 0

    def count(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    history.append(7)
    before = sys.gettrace()
    sys.settrace(count)
    try:
        lookup.commit(history)
        lookup.propose(history, 8)
    finally:
        sys.settrace(before)
    assert 0 < lines < 1000


def test_tokens_that_are_only_guessed_count_for_one_proposal() -> None:
    lookup = PromptLookup()
    history = [1, 2, 3, 4, 5, 6, 1, 2]
    lookup.begin(history, SAMPLER)
    assert lookup.propose([*history, 3, 4], 2).tokens == (5, 6)
    assert lookup.propose([*history, 4, 5], 3).tokens == (6, 1, 2)
    assert lookup.propose([*history, 9], 2).tokens == ()
    assert lookup.propose([*history, 9, 1, 2], 2).tokens == (9, 1), "what followed the last time"
    assert lookup.propose(history, 2).tokens == (3, 4)
