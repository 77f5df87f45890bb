"""Figures in one line, broken between two of them where it is too narrow."""

from collections.abc import Sequence
from typing import Any

from textual.content import Content
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

from app.tui.wording import SEPARATOR


class FoldedLine(Visual):
    """Parts with " · " between them; none stands at the end of a row."""

    def __init__(self, text: str) -> None:
        self._parts = [Content(part) for part in text.split(SEPARATOR)]

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        return self._folded(width).render_strips(width, height, style, options)

    def get_optimal_width(self, rules: Any, container_width: int) -> int:
        whole = Content(SEPARATOR).join(self._parts)
        return whole.get_optimal_width(rules, container_width)

    def get_height(self, rules: Any, width: int) -> int:
        return self._folded(width).get_height(rules, width)

    def _folded(self, width: int) -> Content:
        return Content("\n").join(_rows(self._parts, width))


def _rows(parts: Sequence[Content], width: int) -> list[Content]:
    rows = [parts[0]]
    for part in parts[1:]:
        longer = Content.assemble(rows[-1], SEPARATOR, part)
        if longer.cell_length <= width:
            rows[-1] = longer
        else:
            rows.append(part)
    return rows
