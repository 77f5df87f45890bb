"""TOML that is nested too deep is refused as what is invalid."""

import pytest

from models.bounded_files import parse_toml


@pytest.mark.parametrize("text", ["a = " + "[" * 3000, "a = " + "{a = " * 3000, "a = '"])
def test_what_cannot_be_read_is_refused_in_one_way(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_toml(text)
