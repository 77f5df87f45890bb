"""Which paths of a listing may become files."""

import pytest

from models.hub.repository import is_safe, require_distinct

SAFE = [
    "model.gguf",
    "Q8_0/Model-Q8_0-00001-of-00003.gguf",
    ".gitattributes",
    "config (1).json",
    "模型/größe.gguf",
    "console.gguf",
    "a..b.gguf",
    "~/model.gguf",
    "x" * 200,
]
UNSAFE = [
    *("", ".", "..", "/", "/a", "a/", "a//b", "../a", "a/..", "a/../b", "./a", "a/./b"),
    *("C:a", "C:/a", "\\a", "a\\b", "..\\a", "//host/a", "\\\\?\\C:\\a", "a:stream"),
    *("con", "CON.gguf", "nul.tar.gz", "a/aux/b", "COM1", "lpt9.txt", "com¹"),
    *("CONIN$", "con .gguf"),
    *("a.", "a /b", "a ", "a*", "a?", 'a"', "<a", "a|b", "...", "a\0", "a\nb", "a\x7f", "a\x9b"),
    *("a\u202eb", "a\u200bb", "a\ud800", "x" * 201, "ä" * 101, "a/" * 600 + "a"),
]


@pytest.mark.parametrize("path", SAFE)
def test_paths_as_models_have_them_are_safe(path: str) -> None:
    assert is_safe(path)


@pytest.mark.parametrize("path", UNSAFE)
def test_paths_that_lead_out_or_mean_something_are_not(path: str) -> None:
    assert not is_safe(path)


@pytest.mark.parametrize(
    ("wanted", "listed"),
    [
        ("a.gguf", ["A.gguf"]),
        ("Q4/a.gguf", ["q4/A.GGUF"]),
        ("gr\u00f6\u00dfe.gguf", ["gro\u0308\u00dfe.gguf"]),
        ("stra\u00dfe.gguf", ["STRASSE.gguf"]),
        ("a.gguf", ["a.gguf/b"]),
        ("a.gguf", ["A.gguf/b/c"]),
        ("a/b/c.gguf", ["a"]),
        ("a/b/c.gguf", ["A/B"]),
    ],
)
def test_two_files_never_share_a_place(wanted: str, listed: list[str]) -> None:
    with pytest.raises(ValueError, match="listed"):
        require_distinct([wanted], [wanted, *listed])


def test_what_is_not_wanted_may_collide() -> None:
    require_distinct(["a/b.gguf"], ["a/b.gguf", "a/c.gguf", "README.md", "readme.md", "ab"])
