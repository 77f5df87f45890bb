"""The suffix automaton against brute force: longest earlier match, latest occurrence."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.drafters.lookup import SuffixIndex

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


def check(text: Sequence[int]) -> None:
    index = SuffixIndex()
    for position, token in enumerate(text):
        index.append(token)
        assert len(index) == position + 1
        assert (index.match_length, index.match_end) == longest_match(text[: position + 1])


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


def test_the_first_tokens_match_nothing() -> None:
    index = SuffixIndex()
    assert (index.match_length, index.match_end) == (0, 0)
    index.append(3)
    assert (index.match_length, index.match_end) == (0, 0)


def test_in_a_long_run_of_one_token_the_match_is_an_occurrence() -> None:
    text = [*range(2, 9), *[1] * 250, 9, *[1] * 150]
    index = SuffixIndex()
    for position, token in enumerate(text):
        index.append(token)
        size, end = index.match_length, index.match_end
        assert size == longest_match(text[: position + 1])[0]
        assert end <= position
        assert text[end - size : end] == text[position + 1 - size : position + 1]


@common
@given(texts(3), texts(3))
def test_the_match_after_more_tokens_is_brute_force_too(text: list[int], more: list[int]) -> None:
    """Of occurrences that end before these tokens; the index itself does not change."""
    index = SuffixIndex()
    for token in text:
        index.append(token)
    for count in range(1, len(more) + 1):
        longer = text + more[:count]
        size, end = index.match_after(more[:count])
        ends = range(1, len(text) + 1)
        sizes = [_common_end(longer, longer[:one]) for one in ends]
        assert size == max(sizes, default=0)
        assert size == 0 or end == max(one for one in ends if sizes[one - 1] == size)
    assert index.match_after([]) == (index.match_length, index.match_end) == longest_match(text)


def _common_end(one: Sequence[int], other: Sequence[int]) -> int:
    size = 0
    while size < min(len(one), len(other)) and one[-1 - size] == other[-1 - size]:
        size += 1
    return size
