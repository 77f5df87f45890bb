"""Prompts are read in chunks between whose operations a pass can be stopped soon enough."""

import pytest

from backends.streaming.weight_plan import streamed_chunk


@pytest.mark.parametrize(
    ("megabytes", "tokens"),
    [(0, 512), (12, 512), (33, 512), (73, 256), (132, 128), (240, 64), (20_000, 64)],
)
def test_a_larger_matrix_makes_chunks_shorter(megabytes: int, tokens: int) -> None:
    assert streamed_chunk(megabytes * 1_000_000) == tokens
