"""Markdown in the conversation: lists as cheap as they are long, shown as Textual shows them."""

from collections.abc import Callable

import pytest
from textual.app import App, ComposeResult
from textual.widget import Widget
from textual.widgets import Markdown

from app.tui.answer_text.compact_markdown import CompactMarkdown, ListLine
from app.tui.answer_text.growing_markdown import GrowingMarkdown

LONG = "This item goes on and on, far beyond the end of the line that it began in, and on.\n"
LISTS = f"""Before

- one with **bold** and `code`
- {LONG}- three
  - below three
- [four](https://example.org)

9. nine
10. ten

    and more of ten
11. {LONG}
After
"""


class Shown(App[None]):
    """One widget on a screen."""

    def __init__(self, make: Callable[[], Widget]) -> None:
        super().__init__()
        self._make = make
        self.clicked: list[str] = []

    def compose(self) -> ComposeResult:
        yield self._make()

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        self.clicked.append(event.href)

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        strips = self.screen._compositor.render_strips()
        return [strip.text.rstrip() for strip in strips]


async def shown(make: Callable[[], Widget]) -> list[str]:
    app = Shown(make)
    async with app.run_test(size=(50, 40)) as pilot:
        await pilot.pause()
        return app.lines


async def test_compact_lists_look_as_the_ones_of_textual() -> None:
    assert await shown(lambda: CompactMarkdown(LISTS)) == await shown(lambda: Markdown(LISTS))


@pytest.mark.parametrize("level", range(1, 7))
async def test_a_long_heading_is_there_to_its_end(level: int) -> None:
    lines = await shown(lambda: CompactMarkdown(f"{'#' * level} {'many words ' * 9}at its end\n"))
    assert "at its end" in " ".join(" ".join(lines).split())


async def test_a_link_in_a_list_can_be_clicked() -> None:
    app = Shown(lambda: CompactMarkdown("- [four](https://example.org)"))
    async with app.run_test() as pilot:
        await pilot.click(ListLine, offset=(3, 0))
        await pilot.pause()
        assert app.clicked == ["https://example.org"]


async def test_text_of_a_list_can_be_selected() -> None:
    app = Shown(lambda: CompactMarkdown("- one\n- two"))
    async with app.run_test() as pilot:
        await pilot.mouse_down(ListLine, offset=(2, 0))
        await pilot.hover(app.query(ListLine).last(), offset=(5, 0))
        await pilot.mouse_up(app.query(ListLine).last(), offset=(5, 0))
        await pilot.pause()
        assert app.screen.get_selected_text() == "one\ntwo"


@pytest.mark.parametrize("size", [7, 400])
@pytest.mark.parametrize(
    "text",
    [
        "".join(f"- item {n}\n" for n in range(70)) + "\nEnd.\n",
        "".join(f"{n}. item\n   - below\n" for n in range(30)),
        "```\n" + "- no item\n" * 60 + "```\n" + "- an item\n" * 30,
        "~~~~\n" + "```\n" + "- no item\n" * 60 + "~~~\n~~~~\n",
        "A paragraph of words.\n\n" * 20 + "* a\n\n* b\n" * 10,
    ],
)
async def test_text_that_came_in_pieces_looks_as_if_it_had_come_whole(text: str, size: int) -> None:
    app = Shown(GrowingMarkdown)
    async with app.run_test(size=(50, 140)) as pilot:
        growing = app.query_one(GrowingMarkdown)
        for start in range(0, len(text), size):
            await growing.append(text[start : start + size])
        await pilot.pause()
        in_pieces = app.lines
    app = Shown(lambda: CompactMarkdown(text))
    async with app.run_test(size=(50, 140)) as pilot:
        await pilot.pause()
        assert in_pieces == app.lines


async def test_a_long_list_is_shown_in_sections() -> None:
    app = Shown(GrowingMarkdown)
    async with app.run_test() as pilot:
        growing = app.query_one(GrowingMarkdown)
        for n in range(100):
            await growing.append(f"- item {n}\n")
        await pilot.pause()
        assert len(growing.query(CompactMarkdown)) == 5
        assert growing.source == "".join(f"- item {n}\n" for n in range(100))
        await growing.show("All new.")
        assert len(growing.query(CompactMarkdown)) == 1
        assert growing.source == "All new."
