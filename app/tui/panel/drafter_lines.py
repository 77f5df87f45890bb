"""Who drafted, and how much of it was accepted."""

from collections.abc import Mapping

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from app.engine.reply_metrics import DrafterMetrics
from app.printable import one_line
from app.tui.look.hues import kind_of
from app.tui.panel.bar import bar
from app.tui.panel.line import Line
from app.tui.panel.terms import drafter_term

_NAME_WIDTH = 10
_BAR_WIDTH = 10


def drafter_lines(by_drafter: Mapping[str, DrafterMetrics]) -> list[Line]:
    """A line for each drafter of the answer, the one with the most accepted tokens first."""
    return [_line(name, by_drafter[name]) for name in _most_accepted_first(by_drafter)]


def first_drafter(by_drafter: Mapping[str, DrafterMetrics]) -> str:
    """The drafter with the most accepted tokens; empty if there is none."""
    return next(iter(_most_accepted_first(by_drafter)), "")


def _most_accepted_first(by_drafter: Mapping[str, DrafterMetrics]) -> list[str]:
    return sorted(by_drafter, key=lambda name: -by_drafter[name].accepted)


def _line(name: str, figures: DrafterMetrics) -> Line:
    share = figures.accepted / figures.drafted if figures.drafted else 0.0
    text = f" {_short(name)} {bar(share, _BAR_WIDTH)}{figures.accepted:>4} of {figures.drafted}"
    return Line(Content.assemble(("■", kind_of(name).hue), text), drafter_term(name))


def _short(drafter: str) -> str:
    """The name of a drafter without its settings, in ten columns."""
    name = one_line(drafter.rsplit("/", 1)[-1].partition(":")[0])
    if cell_len(name) > _NAME_WIDTH:
        return set_cell_size(name, _NAME_WIDTH - 1) + "…"
    return set_cell_size(name, _NAME_WIDTH)
