"""Passages: together they are the text, and they end where it has a seam."""

from hypothesis import given
from hypothesis import strategies as st

from app.documents.document import Document
from app.documents.passages import MOST_CHARACTERS, Passage, split

_RENT = "The rent is due on the third working day of each month. "
_SEAMS = "# One", "## Two", "3.1 Terms", "def f():", "    return 1", "", "```", "}", "\f", "a\fb"
_LINES = st.sampled_from([*_SEAMS, _RENT * 9, "x" * 2000, "词语 " * 300])
_TEXTS = st.one_of(st.text(), st.lists(_LINES).map("\n".join))


@given(_TEXTS, st.sampled_from(["a.md", "b.py", "c"]), st.booleans())
def test_passages_are_the_text_in_order_and_bounded(text: str, path: str, has_pages: bool) -> None:
    document = Document(text, (text.count("\f") + 1) * has_pages)
    passages = split(document, path)
    assert "".join(one.text for one in passages) == text
    assert all(0 < len(one.text) <= MOST_CHARACTERS for one in passages)
    lines = text.split("\n")
    before = Passage(path, 1, 1, 0, "", "")
    for one in passages:
        assert before.end <= one.start <= one.end <= len(lines)
        assert one.start - before.end <= 1
        told = "\n".join(lines[one.start - 1 : one.end])
        assert one.text.strip("\n") in told
        before = one
    if has_pages:
        at = 0
        for one in passages:
            assert one.page == 1 + text.count("\f", 0, at)
            assert "\f" not in one.text[:-1]
            at += len(one.text)


def _texts(text: str, path: str) -> list[tuple[str, str]]:
    return [(one.heading, one.text.split("\n")[0]) for one in split(Document(text), path)]


def test_sections_begin_passages_and_short_ones_go_on() -> None:
    body = "The rent is due on the third working day of each month.\n" * 6
    text = (
        f"# Contract\n\n## Rent\n\n{body}\n## Term\n\n{body}\n## Notes\n\nNone.\n\n## Ends\n\nOK.\n"
    )
    assert _texts(text, "a.md") == [
        ("Contract", "# Contract"),
        ("Contract > Term", "## Term"),
        ("Contract > Notes", "## Notes"),
    ]
    numbered = f"1. Parties\n\n{body}\n1.1. Rent\n\n{body}\n2. Term\n\n{body}"
    assert [heading for heading, _ in _texts(numbered, "a.txt")] == [
        "1. Parties",
        "1. Parties > 1.1. Rent",
        "2. Term",
    ]


def test_what_stands_in_a_fence_or_a_list_is_no_heading() -> None:
    text = "# A\n\n```sh\n# not a heading\n```\n" + "1. flour\n2. butter\n" * 40
    assert {heading for heading, _ in _texts(text, "a.md")} == {"A"}


def test_functions_stay_whole() -> None:
    def function(name: str) -> str:
        body = "".join(f"    step({number})  # what happens next\n\n" for number in range(12))
        return f"@cached\ndef {name}(\n    a: int,\n) -> None:\n{body}\n"

    found = split(Document(function("one") + function("two") + function("three")), "a.py")
    assert [one.text for one in found] == [function("one"), function("two"), function("three")]
    assert [one.heading for one in found] == ["@cached", "@cached", "@cached"]


def test_places_are_told_as_lines_or_pages() -> None:
    assert [one.place for one in split(Document("a\f\nb", 2), "r.pdf")] == [
        "r.pdf, page 1",
        "r.pdf, page 2",
    ]
    assert split(Document("a\nb\n"), "n.md")[0].place == "n.md, lines 1 to 2"
    assert split(Document("a"), "n.md")[0].place == "n.md, line 1"
