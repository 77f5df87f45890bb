"""The order of suffixes, compared with sorting them whole."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoding.drafters.retrieval import segment_file as module
from decoding.drafters.retrieval.segment_file import suffix_order
from tests.fixtures.corpora import finished

LARGE = 0xFFFF_FFFF


@settings(max_examples=200)
@given(
    st.lists(st.sampled_from([0, 1, 2, 70_000, LARGE]), max_size=80),
    st.sampled_from([1, 2, 4, 16]),
    st.sampled_from([1, 7, 1 << 16]),
)
def test_places_are_sorted_by_as_many_tokens_as_asked(
    text: list[int], depth: int, chunk: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK", chunk)
        order = finished(suffix_order(np.array(text, np.uint32), depth)).tolist()
    assert sorted(order) == list(range(len(text)))
    suffixes = [text[place : place + depth] for place in order]
    assert suffixes == sorted(suffixes)


def test_it_lets_go_of_the_processor_on_the_way() -> None:
    text = np.random.default_rng(0).integers(0, 50, 300_000).astype(np.uint32)
    assert sum(1 for _ in suffix_order(text, 16)) > 10
