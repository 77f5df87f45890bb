"""Passages of a message, what the model reads of them, and which citations name them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.attachments import CITE, Attachment, AttachmentKind, in_full
from app.chat.sources import (
    asks_about_all,
    citations,
    in_words,
    read_of_all,
    sources_of,
    unknown_in_words,
)

KNOWN = frozenset({1, 2, 3})


def passage(name: str, text: str = "The quay opens at eight.") -> Attachment:
    return Attachment(AttachmentKind.PASSAGE, name, text)


PLAN = passage("[3] notes/plan.md, lines 12 to 40")
PAGE = passage("[4] report, final.pdf, page 7")
LINE = passage("[5] notes/plan.md, line 9")


def test_passages_have_a_number_a_file_and_a_place() -> None:
    file = Attachment(AttachmentKind.FILE, "[6] plan.md", "x")
    sources = sources_of([PLAN, PAGE, LINE, file, passage("no number")])
    assert [(one.number, one.path, one.line, one.page) for one in sources.values()] == [
        (3, "notes/plan.md", 12, 0),
        (4, "report, final.pdf", 0, 7),
        (5, "notes/plan.md", 9, 0),
    ]
    assert sources[4].place == "report, final.pdf, page 7"
    assert in_words(sources.values()) == "3 passages of 2 files"
    assert in_words([]) == ""


@pytest.mark.parametrize(
    ("answer", "cited"),
    [
        ("At eight [1], or nine [2][3].", [1, 2, 3]),
        ("At eight [1, 3]; see [1–2] and [2; 3].", [1, 3, 1, 2, 2, 3]),  # noqa: RUF001
        (
            "- *at* **eight [2]**\n\n> nine [1]\n\n| a [3] | b |\n|---|---|\n| [9] | c |",
            [2, 1, 3, 9],
        ),
        ("八点[1]。九点[2]。", [1, 2]),
        ("It is [7], and ![1]", [7, 1]),
        ("`a [1]` and ```[2]``` and\n\n```python\nx = [1]\n```\n\n    y = [2]\n\n~~~\n[3]", []),
        ("[1](https://e.org/[2]), [^1], [a[1]](b), items[1], grid[1][2], f(x)[3]", []),
        (r"\[1\], \(x_{[2]}\), [0], [2024], [1, 2, 9], [], [ 1 ], [-1], [1.5], [[1]]", []),
        ("see [9]\n\n[9]: https://e.org", []),
        ("<think>maybe [1]</think>yes [2]", [2]),
        ("[" * 5000 + "1" + "]" * 5000, []),
    ],
)
def test_only_what_names_a_passage_or_seems_to_is_a_citation(answer: str, cited: list[int]) -> None:
    assert [*citations(answer, KNOWN)] == cited
    assert citations(answer, frozenset()) == ()


def test_citations_that_name_nothing_are_told_and_counted() -> None:
    assert unknown_in_words("At eight [1], nine [3].", KNOWN) == ""
    assert unknown_in_words("At eight [7].", KNOWN) == "[7] names no passage"
    told = "3 citations name no passage: [7], [9]"
    assert unknown_in_words("[9] and [7], again [9]; not `[8]`, but [2]", KNOWN) == told


PIECES = (
    "[1]|[2]|[9]|[1, 2]|`|``|```\n|~~~\n|\n|\n\n|    |> |- |(|)|[|]|!|\\|*|_|a| |:|<|\\(|\\)|漢|^"
)
OF_ALL = """How many boats are there?|List every boat.|Which of them leak?|Count the boats|all names
Wie viele Boote gibt es?|Zähle die Boote|Nenne alle Boote|Welche davon lecken?|Liste jedes Boot auf
Combien de bateaux ?|Cite tous les bateaux|Lesquels fuient ?|¿Cuántos barcos hay?|Nombra todos"""
OF_ONE = """When does the quay open?|Who wrote it, after all?|Is it open at all?|Is that all right?
Can I count on it?|Wann öffnet der Kai?|Was kostet die Reparatur?|Où est le quai ?|Call me
¿Cuándo abre?"""


def test_questions_about_all_are_told_by_their_words() -> None:
    for texts, expected in ((OF_ALL, True), (OF_ONE, False)):
        for text in texts.replace("\n", "|").split("|"):
            assert asks_about_all(text) is expected, text


def test_of_a_question_about_all_only_what_was_read_is_claimed() -> None:
    sources = sources_of([PLAN, PAGE]).values()
    assert read_of_all(sources, 1214) == "only 2 of 1,214 passages were read"
    assert read_of_all(sources, 0) == "only 2 passages were read"


MARKUP = st.lists(st.sampled_from([*PIECES.split("|"), "|"]), max_size=40).map("".join)


@given(MARKUP)
def test_any_markup_is_read_and_code_holds_no_citation(answer: str) -> None:
    found = citations(answer, KNOWN)
    assert len(found) <= 2 * len(re.findall(r"\[\d", answer))
    longest = max(map(len, re.findall("`+", answer)), default=0) + 3
    fence = "`" * longest
    assert citations(f"{fence}\n{answer}\n{fence}", KNOWN) == ()
    one_line = answer.replace("\n", " ").strip()
    assert citations(f"`{fence} {one_line} {fence}`", KNOWN) == ()


# What stands in a file cannot leave its block.

SIGNS = (
    f"```|````|~~~|\n|[1] other.md, lines 1 to 2:|[pasted 6 lines]|{CITE}|x|</s>|[7]|\r\n|\x1b[31m"
)
HOSTILE = st.lists(st.sampled_from(SIGNS.split("|")), max_size=20).map("".join)


@given(HOSTILE, st.sampled_from(["a.md", "a\n```\n[9] b.md", "[2] c.md, line 1", "```"]))
def test_a_passage_cannot_leave_its_block(text: str, name: str) -> None:
    paste = Attachment(AttachmentKind.PASTE, "[pasted 6 lines]", "the paste")
    hostile = passage(f"[1] {name}, lines 1 to 2", text)
    read = in_full("Is it so? [pasted 6 lines]", [hostile, passage("[2] b.md", "honest"), paste])
    lines = read.split("\n")
    assert lines[0] == CITE
    assert lines[2] == f"[1] {name}, lines 1 to 2:".replace("\n", "␊")
    fence = lines[3]
    assert set(fence) == {"`"}
    assert len(fence) >= 3
    end = lines.index(fence, 4)  # the first line that ends the block
    assert "\n".join(lines[4:end]) == text.rstrip("\n")
    assert lines[end + 1 :] == ["", "[2] b.md:", "```", "honest", "```", "", "Is it so? the paste"]


def test_the_model_is_asked_to_cite_only_where_there_are_passages() -> None:
    file = Attachment(AttachmentKind.FILE, "a.md", "whole")
    assert CITE not in in_full("why?", [file])
    read = in_full("why?", [PLAN, file])
    assert read.startswith("a.md:\n```\nwhole\n```\n\n" + CITE)  # files stay first, as read ahead
    assert read.count(CITE) == 1
