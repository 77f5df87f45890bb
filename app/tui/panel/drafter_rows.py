"""Who drafted, and how much of it was accepted."""

from collections.abc import Mapping
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual.containers import Vertical
from textual.content import Content

from app.engine.reply_metrics import DrafterMetrics
from app.printable import one_line
from app.tui.look.hues import kind_of
from app.tui.panel.bar import bar
from app.tui.panel.figure_row import FigureRow
from app.tui.panel.terms import drafter_term

_NAME_WIDTH = 10
_COUNTS_WIDTH = 14
"""Accepted tokens end in its fourth column."""


class DrafterRows(Vertical):
    """A row for each drafter of the answer, the one with the most accepted tokens first."""

    DEFAULT_CSS: ClassVar[str] = "DrafterRows { height: auto; width: 38; }"

    @property
    def help_text(self) -> str:
        """The explanation of the first drafter; empty if there is none."""
        return next((row.help_text for row in self.query(FigureRow) if row.text), "")

    def show(self, by_drafter: Mapping[str, DrafterMetrics]) -> None:
        """Show the drafters; rows are added for new ones and never removed."""
        drafters = sorted(by_drafter.items(), key=lambda item: -item[1].accepted)
        rows = list(self.query(FigureRow))
        added = [FigureRow("") for _ in drafters[len(rows) :]]
        if added:
            self.mount_all(added)
        rows += added
        for row, (name, figures) in zip(rows, drafters, strict=False):
            row.help_text = drafter_term(one_line(name)).sentence
            row.show(_row(name, figures))
        for row in rows[len(drafters) :]:
            row.help_text = ""
            row.show("")


def _row(name: str, figures: DrafterMetrics) -> Content:
    share = figures.accepted / figures.drafted if figures.drafted else 0.0
    counts = f"{figures.accepted:>4} of {figures.drafted}".ljust(_COUNTS_WIDTH)
    return Content.assemble(
        ("■", kind_of(name).hue), f" {short_name(name)} {bar(share, _NAME_WIDTH)}{counts}"
    )


def short_name(drafter: str) -> str:
    """The name of a drafter without its settings, in ten columns."""
    name = one_line(drafter.rsplit("/", 1)[-1].partition(":")[0])
    if cell_len(name) > _NAME_WIDTH:
        return set_cell_size(name, _NAME_WIDTH - 1) + "…"
    return set_cell_size(name, _NAME_WIDTH)
