"""What an index in memory finds is what a search of every text finds."""

from collections.abc import Sequence

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from decoding.drafters.retrieval.segment import TextIndex
from decoding.drafters.retrieval.segment_file import DEPTH

TOKEN = st.sampled_from([0, 1, 2, (1 << 21) - 2])
TEXTS = st.lists(st.lists(TOKEN, max_size=40), max_size=4)


def searched(
    texts: Sequence[Sequence[int]], history: Sequence[int], count: int
) -> tuple[int, list[tuple[int, ...]]]:
    """Length of the longest match of at least 3 tokens, and what follows each, in order."""
    for length in range(min(DEPTH, len(history)), 2, -1):
        suffix = list(history[-length:])
        ends = [
            (text, end)
            for text in texts
            for end in range(length, len(text) + 1)
            if list(text[end - length : end]) == suffix
        ]
        if ends:
            found = [tuple(text[end : end + count]) for text, end in ends[:16]]
            return length, [tokens for tokens in found if tokens]
    return 0, []


@given(TEXTS, st.lists(TOKEN, max_size=24), st.integers(1, 70))
@example([[0] * 40], [0] * 24, 5)
@example([[1, 0, 0, 0], [0, 0, 0, 2]], [1, 0, 0, 0], 62)
def test_the_longest_match_is_found_and_nothing_beyond_a_text(
    texts: list[list[int]], history: list[int], count: int
) -> None:
    index = TextIndex([np.array(text, np.uint32) for text in texts])
    length, occurrences = index.find(history, 3, count)
    expected = searched(texts, history, count)
    assert (length, [one.tokens for one in occurrences]) == (expected if expected[1] else (0, []))


@given(TEXTS, st.lists(TOKEN, max_size=24), st.integers(3, 20))
def test_a_shorter_match_than_asked_for_is_none(
    texts: list[list[int]], history: list[int], least: int
) -> None:
    index = TextIndex([np.array(text, np.uint32) for text in texts])
    length = index.find(history, 3, 8)[0]
    assert index.find(history, least, 8)[0] == (length if length >= least else 0)
