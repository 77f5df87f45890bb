"""TOML that is nested too deep is refused as what is invalid."""

import pytest

from models.bounded_files import parse_toml


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 3000,
        "a = " + "{a = " * 3000,
        "a = '",
        "a." * 50_000 + "a = 1",
        '"a" . ' * 50_000 + "a = 1",
        'a = "' + '\\"' * 100_000,
    ],
)
def test_what_cannot_be_read_is_refused_in_one_way(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_toml(text)


def test_texts_with_many_points_are_no_keys() -> None:
    text = "One word. " + "..." * 1000 + " e.g. this" * 1000
    assert parse_toml(f'a = """{text}"""')["a"] == text
