"""Markdown in the conversation: nothing hidden, and as cheap as it is long."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from rich.cells import cell_len
from textual.geometry import Offset
from textual.selection import SELECT_ALL, Selection

from app.tui.chat import markdown
from app.tui.chat.answer import GrowingMarkdown
from tests.app.tui.answer_text.showing import Showing

Markdown = tuple[Showing, GrowingMarkdown]
CODE = (
    "```python\n"
    'changed = {"wether": "weather", "Aprill": "April", "offen": "often", "umbrela": "umbrella"}\n'
    "```\n"
)
TABLE = """\
| way | lines | remark |
| --- | --- | --- |
| sum | 1 | the shortest of them all, and **quick** |
| loop | 3 | - |
"""


@asynccontextmanager
async def showing(text: str = "", size: tuple[int, int] = (80, 24)) -> AsyncIterator[Markdown]:
    app = Showing(lambda: GrowingMarkdown(text))
    async with app.run_test(size=size) as app.pilot:
        await app.pilot.pause()
        yield app, app.query_one(GrowingMarkdown)


async def shown(text: str, size: tuple[int, int] = (50, 60)) -> list[str]:
    async with showing(text, size) as (app, _):
        return app.lines


async def drag(app: Showing, start: tuple[int, int], end: tuple[int, int]) -> str | None:
    """Select with the mouse; returns what is selected."""
    await app.pilot.mouse_down(GrowingMarkdown, offset=start)
    await app.pilot.hover(GrowingMarkdown, offset=end)
    await app.pilot.mouse_up(GrowingMarkdown, offset=end)
    await app.pilot.pause()
    return app.screen.get_selected_text()


async def test_code_has_a_rule_its_language_and_a_mark_where_a_line_goes_on() -> None:
    assert await shown(CODE, (75, 10)) == [
        "┃ python",
        '┃ changed = {"wether": "weather", "Aprill": "April", "offen": "often",',
        '┃ ↪ "umbrela": "umbrella"}',
    ]
    assert (await shown(CODE, (34, 10)))[1:3] == [
        '┃ changed = {"wether": "weather",',
        '┃ ↪ "Aprill": "April", "offen":',
    ]


@pytest.mark.parametrize("width", [3, 10, 40, 80])
async def test_the_last_word_of_a_long_line_of_code_is_visible(width: int) -> None:
    line = "word " * 39 + "lastword"
    lines = await shown(f"```\n{line}\n```", (width, 250))
    text = "".join("".join(lines).replace("┃", "").replace("↪", "").split())
    assert text == line.replace(" ", "")
    assert all(cell_len(row) <= width for row in lines)


async def test_wide_characters_in_code_fit_the_width() -> None:
    lines = await shown(f"```\n{'漢字' * 40}\n```", (21, 30))
    assert "".join(lines).count("漢字") + "".join(lines).count("字┃") >= 30
    assert all(cell_len(row) <= 21 for row in lines)


async def test_columns_of_a_table_wrap() -> None:
    assert await shown(TABLE, (36, 20)) == [
        "way   lines  remark",
        "────  ─────  ───────────────────────",
        "sum   1      the shortest of them",
        "             all, and quick",
        "loop  3      -",
    ]


async def test_a_table_without_room_for_columns_is_listed() -> None:
    lines = await shown(TABLE, (12, 40))
    words = " ".join(lines).split()
    assert [word for word in words if word in ("way", "sum", "loop")] == [
        "way", "sum", "way", "loop",
    ]  # fmt: skip
    assert "quick" in words


async def test_html_is_shown_as_it_is_written() -> None:
    assert await shown("Use the <div> tag.\n\n<p>Text</p>\n") == [
        "Use the <div> tag.",
        "",
        "<p>Text</p>",
    ]


async def test_lists_begin_where_text_begins() -> None:
    text = "Text\n\n1. one\n2. two\n   - three\n\n- four\n"
    assert await shown(text) == [
        "Text", "", "1. one", "2. two", "   • three", "", "• four",
    ]  # fmt: skip


@pytest.mark.parametrize("level", range(1, 7))
async def test_a_long_heading_is_there_to_its_end(level: int) -> None:
    lines = await shown(f"{'#' * level} {'many words ' * 9}at its end\n")
    assert "at its end" in " ".join(" ".join(lines).split())


async def test_a_link_in_a_list_can_be_clicked(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[str] = []
    monkeypatch.setattr("pyperclip.copy", copied.append)
    async with showing("- [four](https://example.org)") as (app, _):
        await app.pilot.click(GrowingMarkdown, offset=(3, 0))
        await app.pilot.pause()
        assert copied == ["https://example.org"]


async def test_text_of_a_list_can_be_selected() -> None:
    async with showing("- one\n- two") as (app, _):
        assert await drag(app, (2, 0), (5, 1)) == "one\ntwo"


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7, 400])
@pytest.mark.parametrize(
    "text",
    [
        "".join(f"- item {n}\n" for n in range(70)) + "\nEnd.\n",
        "".join(f"{n}. item\n   - below\n" for n in range(10, 40)),
        "```\n" + "- no item\n" * 60 + "```\n" + "- an item\n" * 30,
        "- item\n  ```\n  x\n  ```\n" * 9 + "- *plain*\n  1. z\n",
        "".join(f"{n}. item\n\n" for n in range(1, 13)) + "2026 ends it.\n",
        "~~~~\n" + "```\n" + "- no item\n" * 60 + "~~~\n~~~~\n",
        "A paragraph of words.\n\n" * 20 + "* a\n\n* b\n" * 10,
        "# Head\n\nA paragraph.\n\n" * 15 + CODE + TABLE + "\n> quoted\n> text\n\n" + TABLE,
        "```python\n" + 'text = """a\n\n\nb"""\n' * 30 + "```\nEnd",
    ],
)
async def test_text_that_came_in_pieces_looks_as_if_it_had_come_whole(text: str, size: int) -> None:
    async with showing(size=(50, 150)) as (app, growing):
        for start, end in pairwise([*range(0, len(text), size), len(text)]):
            growing.append(text[start:end])
        growing.settle()
        await app.pilot.pause()
        assert app.lines == await shown(text, (50, 150))
        assert growing.document.text == text


async def test_a_list_of_text_hangs_under_its_bullets_and_numbers() -> None:
    items = "".join(f"{n}. item of seven words, like the others\n" for n in (9, 10))
    below = "    - a nested item that is longer\n      - deeper\\\n        still\n\n      its end\n"
    assert await shown(f"{items}{below}11.\n12. - *two* lists\n", (24, 30)) == [
        " 9. item of seven words,",
        "    like the others",
        "10. item of seven words,",
        "    like the others",
        "    • a nested item that",
        "      is longer",
        "      ▪ deeper",
        "        still",
        "      its end",
        "11.",
        "12. • two lists",
    ]


async def test_selected_text_of_a_list_is_marked_and_copied_without_its_bullets() -> None:
    async with showing("1. one two three\n2. four", (12, 20)) as (app, _):
        assert await drag(app, (3, 1), (5, 2)) == "three\nfou"
        assert app.lines == ["1. one two", "   three", "2. four"]


async def test_control_characters_shift_no_columns() -> None:
    prose, code = "a\x1b[31mb\u202ec\x07\u2028d\r\n", "x\x1b[2Jy\x0bz\u2066\n"
    text = f"{prose}\n```\n{code}```\n\n| h |\n| --- |\n| \x9bi |\n"
    async with showing(size=(40, 20)) as (app, growing):
        for character in text:
            growing.append(character)
        await app.pilot.pause()
        assert app.lines == ["a␛[31mb�c␇�d", "", "┃ x␛[2Jy␋z�", "", "h", "──", "�i"]


async def test_code_is_copied_without_marks_by_the_mouse_and_by_a_click(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied: list[str] = []
    monkeypatch.setattr("pyperclip.copy", copied.append)
    async with showing(f"Text\n\n{CODE}", (40, 20)) as (app, shown):
        [_, line, _] = CODE.splitlines()
        assert shown.get_selection(SELECT_ALL)[0] == f"Text\n\n{line}"
        await app.pilot.click(GrowingMarkdown, offset=(5, 3), times=2)
        assert app.screen.get_selected_text() == line
        app.screen.clear_selection()
        await app.pilot.click(GrowingMarkdown, offset=(5, 3))
        await app.pilot.pause()
        assert copied[-1] == line
        app.screen.selections = {shown: Selection(Offset(11, 3), Offset(20, 4))}
        await app.pilot.pause()
        assert app.screen.get_selected_text() == line[11:52]
        assert app.lines[3] == '┃ changed = {"wether": "weather",'


async def test_what_grows_keeps_the_lines_that_it_had() -> None:
    growing = markdown.Document()
    for block in ("".join(f"- item {n}\n" for n in range(90)), f"\n{TABLE}", f"\n{CODE}"):
        growing.append(block)
    lines = list(growing.lines)
    growing.append("\nAnd text")
    assert growing.lines[: len(lines)] == lines
    text = growing.lines[-1]
    assert growing.append("that") == len(growing.lines) - 1
    assert growing.lines[-1] is not text
    reads: list[int] = []
    for n in range(90):
        growing.append(f"\n\n- item {n}" if not n else f"\n- item {n}")
        reads.append(len(growing.lines) - growing._cut.lines)
    assert max(reads) < 30  # of a long list only the last items are read again
    assert growing.source == growing.text


async def test_the_cursor_may_need_a_row_which_goes_with_it() -> None:
    async with showing(size=(12, 20)) as (app, growing):
        growing.set_cursor(True)
        for text in ("- one\n", "- twelve", "char"):
            growing.append(text)
        await app.pilot.pause()
        assert app.lines == ["• one", "• twelvechar", "  █"]
        growing.append("\n- full width")
        await app.pilot.pause()
        assert app.lines[1:] == ["• twelvechar", "• full", "  width█"]
        growing.set_cursor(False)
        await app.pilot.pause()
        assert app.lines[1:] == ["• twelvechar", "• full width"]


async def test_a_rule_is_as_wide_as_the_text() -> None:
    async with showing("a\n\n---\n\nb", (12, 9)) as (app, text):
        assert app.lines == ["a", "", "─" * 12, "", "b"]
        assert text.get_selection(SELECT_ALL)[0] == f"a\n\n{'─' * 12}\n\nb"


async def test_wide_characters_in_text_fill_their_rows() -> None:
    assert await shown("漢字 " * 3 + "漢" * 12 + "ab", (9, 20)) == [
        "漢字 漢字", "漢字", "漢漢漢漢", "漢漢漢漢", "漢漢漢漢a", "b",
    ]  # fmt: skip


async def test_lists_and_code_within_lists() -> None:
    text = "- one and\n- **two**\n  1. three\n\n  ```\n  code\n  ```\n- four\n\n> quoted\n\nend"
    assert await shown(text) == [
        "• one and", "• two", "  1. three", "  ┃ code", "", "• four", "", "│ quoted", "", "end",
    ]  # fmt: skip


async def test_formulas_columns_and_later_blocks_of_code_can_be_told() -> None:
    text = (
        "A \\(x_1 * y_1\\) and \\[\n a_2\n\\], but \\(not\n\n"
        "| n | m |\n| :-: | --: |\n| wide | wide |\n| 1 | 2 |\n\n"
        "```python\none\n```\n\n```\ntwo\n```\n"
    )
    assert await shown(text) == [
        "A x_1 * y_1 and a_2, but (not",
        "",
        " n       m",
        "────  ────",
        "wide  wide",
        " 1       2",
        "",
        "┃ python",
        "┃ one",
        "",
        "┃ /code 2",
        "┃ two",
    ]
    document = markdown.Document()
    for character in text:  # the number is the same as it grows
        document.append(character)
    assert document.codes == ["one", "two"]
    assert [line.key for line in document.lines] == [
        line.key for line in markdown.Document(text).lines
    ]


async def test_levels_of_headings_and_code_in_a_line_look_different() -> None:
    async with showing("# One\n\n## Two\n\n### Three\n\n`code` and *text*") as (app, _):
        styles = {one.text.strip(): one.style for one in app.segments() if one.style}
        assert styles["One"].underline
        assert styles["Two"].bold
        assert styles["Three"].italic
        assert len({str(styles[level]) for level in ("One", "Two", "Three")}) == 3
        assert "code" in app.painted("text-accent")
