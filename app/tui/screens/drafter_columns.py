"""A drafter as one row of a list: its hue and name, what it is, and what became of its drafts."""

from dataclasses import dataclass

from textual.content import Content

from app.pairing import drafter_words
from app.pairing.ranking import Pair
from app.printable import one_line
from app.tui.look.hues import kind_of
from app.tui.panel.bar import bar
from app.tui.screens.dialog import is_narrow
from app.tui.screens.model_columns import lead_of
from app.tui.screens.row_list import Row, columns

_NAME, _LONGEST_NAME = 13, 21
_NATURE, _SHARE = 31, 23
"""Cells of what a drafter is, at most, and of what became of its drafts."""

_BAR, _SHORT_BAR = 10, 8


@dataclass(frozen=True, slots=True)
class DrafterColumns:
    """Rows of one list.

    requested: names of the drafters in use. longest: cells of the longest name. is_measuring:
    whether what is not known yet is being measured.
    """

    requested: frozenset[str]
    longest: int
    is_measuring: bool

    def choice(self, name: str, words: str, short: str = "") -> Row:
        """A row that is no drafter, such as auto."""

        def render(width: int, is_focused: bool) -> Content:
            text = short if is_narrow(width + 2) else words
            lead, named = self._lead(name, is_focused, " "), self._name(name, width, is_focused)
            return columns(lead, named, (Content(text), width - lead[1] - named[1]))

        return Row(name, render)

    def heading(self, title: str, share: str = "", short: str = "") -> Row:
        """A heading, with one for the column of accepted shares."""

        def render(width: int, _is_focused: bool) -> Content:
            at = 5 + _NAME if is_narrow(width + 2) else self._share_at(width)
            second = short if is_narrow(width + 2) else share
            text = f"     {title}"
            return Content.styled(f"{text:<{at}}{second}"[:width] if second else text, "$secondary")

        return Row(None, render)

    def row(self, pair: Pair) -> Row:
        """The row of a drafter."""
        return Row(pair.drafter.name, lambda width, focused: self._line(pair, width, focused))

    def _line(self, pair: Pair, width: int, is_focused: bool) -> Content:
        name = pair.drafter.name
        lead = self._lead(name, is_focused, "■", kind_of(name.partition("(")[0]).hue)
        named = self._name(name, width, is_focused)
        if is_narrow(width + 2):
            words = drafter_words.short_verdict(pair, is_measuring=self.is_measuring)
            share = Content(words) if words else _share(pair, _SHORT_BAR)
            return columns(lead, named, (share, width - 5 - named[1]))
        nature = Content.styled(drafter_words.nature(pair), "$secondary")
        words = drafter_words.verdict(pair, is_measuring=self.is_measuring)
        share = Content(words) if words else _share(pair, _BAR)
        at = self._share_at(width)
        room = at - 5 - named[1]
        nature = Content.assemble(nature.truncate(room - 1, ellipsis=True), " ")
        return columns(lead, named, (nature, room), (share, width - at))

    def _share_at(self, width: int) -> int:
        """Column of the accepted share."""
        return min(5 + self._name_room(width) + _NATURE, width - _SHARE)

    def _lead(
        self, name: str, is_focused: bool, square: str, style: str = ""
    ) -> tuple[Content, int]:
        mark = "●" if name in self.requested else ""
        lead, width = lead_of(is_focused, mark, "$primary")
        return Content.assemble(lead, (square, style), " "), width + 2

    def _name_room(self, width: int) -> int:
        return _NAME if is_narrow(width + 2) else min(max(_NAME, self.longest + 1), _LONGEST_NAME)

    def _name(self, name: str, width: int, is_focused: bool) -> tuple[Content, int]:
        room = self._name_room(width)
        text = Content.styled(one_line(name), "bold" if is_focused else "")
        return Content.assemble(text.truncate(room - 1, ellipsis=True), " "), room


def _share(pair: Pair, cells: int) -> Content:
    share = pair.acceptance or 0.0
    return Content(f"{bar(share, cells)}  {100 * share:.0f} %")
