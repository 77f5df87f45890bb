"""One line of the panel."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from textual.content import Content

from app.tui.panel.terms import Term

MUTED = "$text-muted"


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """Figures and the term that explains them; none for captions and blank lines."""

    content: Content
    term: Term | None = None

    @classmethod
    def of(cls, text: str = "", term: Term | None = None, style: str = "") -> Self:
        """A line of one style; "" is that of the panel."""
        return cls(Content.styled(text, style) if style else Content(text), term)

    def is_same(self, other: "Line") -> bool:
        """Whether it shows and explains the same."""
        return self.term == other.term and self.content.is_same(other.content)


BLANK = Line.of()


def beside(left: Iterable[Line], right: Iterable[Line], width: int) -> list[Line]:
    """Lines next to each other, those of the left in so many columns; explained by the right."""
    return [
        Line(one.content.pad_right(width - one.content.cell_length) + two.content, two.term)
        for one, two in zip(left, right, strict=True)
    ]
