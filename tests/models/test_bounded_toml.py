"""TOML within bounds: what is too deep is refused at once, and nothing else is."""

import pytest

from models.bounded_files import MOST_DEPTH, MOST_PARTS, parse_toml


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 3000,
        "a = " + "{a = " * 3000,
        ".".join(["a"] * 50_000) + " = 1",
        "[" + ".".join(["a"] * 50_000) + "]",
        '"a".' * 50_000 + "a = 1",
        "a . " * 50_000 + "a = 1",
        'x = ["""a"""", ' + "[" * 3000,
        "x = '''a''''\ny = " + "[" * 3000,
        'x = "\\\\"\ny = ' + "[" * 3000,
    ],
)
def test_what_goes_deeper_than_any_true_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested more|parts"):
        parse_toml(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('a = "' + "[" * 3000 + '"', "[" * 3000),
        ("a = '" + "a." * 3000 + "'", "a." * 3000),
        ('a = """\n' + '"" [[ ' * 3000 + '"""', '"" [[ ' * 3000),
        ("a = '''" + "{a='" * 3000 + "'''", "{a='" * 3000),
        ("a = 1 # " + "[a.b.c" * 3000, 1),
        ("a = [" + "[1], " * 3000 + "]", [[1]] * 3000),
        ("a = " + "[" * MOST_DEPTH + "]" * MOST_DEPTH, None),
        (".".join(["a"] * MOST_PARTS) + " = 1", None),
    ],
)
def test_texts_comments_and_long_lists_are_no_depth(text: str, value: object) -> None:
    found = parse_toml(text)["a"]
    assert value is None or found == value


def test_what_is_never_closed_is_looked_at_once() -> None:
    """Each of these takes minutes where a place is looked at again for each that follows it."""
    for text in (
        'a = "' + '\\"' * 100_000,
        '"' * 99_999,
        "'" * 99_999,
        "a" * 200_000,
        "a = ''''" * 50_000,
    ):
        with pytest.raises(ValueError, match=r".+"):
            parse_toml(text)
