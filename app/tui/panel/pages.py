"""What the panel shows, line by line, in each of its layouts."""

from dataclasses import dataclass, replace
from enum import Enum
from textwrap import wrap
from typing import Self

from textual.content import Content

from app.engine.reply_metrics import ReplyMetrics
from app.tui.live import Live
from app.tui.panel.details import accepted_in_a_row, counts, memory_limit, start, time_spent
from app.tui.panel.drafter_lines import drafter_lines, first_drafter
from app.tui.panel.graph import graph
from app.tui.panel.headline import digits_width, headline, shortened, summary, warned
from app.tui.panel.legend import legend
from app.tui.panel.line import BLANK, MUTED, Line, beside
from app.tui.panel.terms import SESSION, SPEED, STEP, Term, drafter_term

WIDTH = 38
_SESSION = "this session  "
_GAP = 3
_DRAFTERS_IN_STRIP = 3
_DRAFTERS_IN_NARROW_STRIP = 2


class Layout(Enum):
    """Where the panel is: beside the conversation, or above the prompt of a narrower screen."""

    SIDE = 110
    STRIP = 80
    NARROW = 0

    @classmethod
    def of(cls, columns: int) -> Self:
        """The layout on a screen of so many columns."""
        return next(layout for layout in cls if columns >= layout.value)


@dataclass(frozen=True, slots=True)
class Room:
    """Space kept for figures: it only grows, so that nothing moves while they change."""

    digits_width: int = 9
    drafters: int = 0

    def grown(self, live: Live) -> Self:
        """The room that these figures need as well."""
        drafters = len(live.metrics.by_drafter) if live.metrics else 0
        return replace(
            self,
            digits_width=max(self.digits_width, digits_width(live.rate)),
            drafters=max(self.drafters, drafters),
        )


def page(
    live: Live, details: ReplyMetrics | None, layout: Layout, columns: int, room: Room
) -> list[Line]:
    """The lines for the newest figures.

    details: of the newest answer that has any, if they are to be shown instead. columns: of the
    panel's content.
    """
    if is_empty(live):
        return legend()
    if details is not None:
        return _details(details, layout)
    return _side(live, room) if layout is Layout.SIDE else _strip(live, layout, columns)


def is_empty(live: Live) -> bool:
    """Whether there are no figures of the model in use."""
    return live.metrics is None and not live.minute


def default_term(live: Live, details: ReplyMetrics | None) -> Term | None:
    """What is explained while no figure is pointed at: the first drafter, or a step."""
    if is_empty(live):
        return None
    if details is not None:
        return STEP
    first = first_drafter(live.metrics.by_drafter) if live.metrics else ""
    return drafter_term(first) if first else SPEED


def explanation(term: Term | None, layout: Layout, columns: int) -> list[Line]:
    """The lines that explain a term; none where there is no room."""
    if term is None or layout is Layout.NARROW:
        return []
    if layout is Layout.STRIP:
        text = Content.styled(term.sentence, MUTED)
        return [Line(text.truncate(columns, ellipsis=True))]
    return [Line.of(row, style=MUTED) for row in wrap(term.sentence, columns - 1)]


def _graph(live: Live) -> list[Line]:
    return graph(live.minute, None if live.plain is None else float(f"{live.plain:.3g}"))


def _drafters(live: Live) -> list[Line]:
    return drafter_lines(live.metrics.by_drafter) if live.metrics else []


def _side(live: Live, room: Room) -> list[Line]:
    lines = [*headline(live, room.digits_width, WIDTH), *_graph(live)]
    lines += [Line.of("last minute", style=MUTED), BLANK]
    if room.drafters:
        lines.append(Line.of("who drafted              accepted", style=MUTED))
        lines += [*_filled(_drafters(live), room.drafters), BLANK]
    words = shortened(live.session.panel_words, WIDTH - len(_SESSION))
    if words and live.answers > 1:  # that of one answer stands above
        answers = f"in {live.answers:,} answers"
        lines.append(Line(Content.assemble(_SESSION, warned(words)), SESSION))
        lines += [Line.of(" " * len(_SESSION) + answers, SESSION), BLANK]
    return lines


def _strip(live: Live, layout: Layout, columns: int) -> list[Line]:
    first, rows = summary(live, columns), _graph(live)
    if layout is Layout.NARROW:
        return [first, *rows, *_filled(_drafters(live), _DRAFTERS_IN_NARROW_STRIP)]
    return [first, *beside(rows, _filled(_drafters(live), _DRAFTERS_IN_STRIP), WIDTH + _GAP)]


def _details(metrics: ReplyMetrics, layout: Layout) -> list[Line]:
    in_a_row, numbers = accepted_in_a_row(metrics.accepted_lengths), counts(metrics)
    time, limit = [*time_spent(metrics), start(metrics)], memory_limit(metrics)
    if layout is not Layout.STRIP:
        title = [Line(Content.assemble(("Details", "bold"), f"{'':17}F2 closes")), BLANK]
        lines = [*in_a_row, BLANK, *time, BLANK, *limit, BLANK, *numbers]
        return [*title, *lines, BLANK] if layout is Layout.SIDE else lines
    left, right = [*in_a_row, BLANK, *numbers], [*time, BLANK, *limit]
    return beside(left, _filled(right, len(left)), WIDTH + _GAP)


def _filled(lines: list[Line], count: int) -> list[Line]:
    """So many lines, the further ones blank."""
    return [*lines[:count], *[BLANK] * (count - len(lines))]
