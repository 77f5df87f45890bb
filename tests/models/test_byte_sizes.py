"""Sizes in lists are as short as they can be without misleading."""

import pytest

from models.byte_sizes import short_size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (98e6, "98 MB"),
        (99.6e6, "0.1 GB"),
        (484e6, "0.5 GB"),
        (2.497e9, "2.5 GB"),
        (9.96e9, "10 GB"),
        (11.2e9, "11 GB"),
    ],
)
def test_a_size_has_two_digits(count: float, text: str) -> None:
    assert short_size(count) == text
