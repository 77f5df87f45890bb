"""What the panel shows, line by line, in each of its layouts."""

from enum import Enum
from textwrap import wrap
from typing import Self

from textual.content import Content

from app.engine.reply_metrics import ReplyMetrics
from app.tui.live import Live
from app.tui.panel.details import accepted_in_a_row, counts, memory_limit, time_spent
from app.tui.panel.drafter_lines import drafter_lines, first_drafter
from app.tui.panel.graph import graph
from app.tui.panel.headline import headline, panel_words, summary
from app.tui.panel.legend import legend
from app.tui.panel.line import BLANK, MUTED, Line, beside
from app.tui.panel.terms import SESSION, SPEED, STEP, Term, drafter_term

WIDTH = 38
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


def page(
    live: Live, layout: Layout, columns: int, digits_width: int, *, is_detailed: bool
) -> list[Line]:
    """The lines for the newest figures; columns: of the panel's content."""
    if live.metrics is None and not live.minute:
        return legend()
    if is_detailed and live.metrics is not None:
        return _details(live.metrics, layout)
    if layout is Layout.SIDE:
        return _side(live, digits_width)
    return _strip(live, layout, columns)


def default_term(live: Live, *, is_detailed: bool) -> Term | None:
    """What is explained while no figure is pointed at: the first drafter, or a step."""
    if live.metrics is None:
        return None
    if is_detailed:
        return STEP
    first = first_drafter(live.metrics.by_drafter)
    return drafter_term(first) if first else SPEED


def explanation(term: Term | None, layout: Layout, columns: int) -> list[Line]:
    """The lines that explain a term; none where there is no room."""
    if term is None or layout is Layout.NARROW:
        return []
    if layout is Layout.STRIP:
        text = Content.styled(term.sentence, MUTED)
        return [Line(text.truncate(columns, ellipsis=True))]
    return [BLANK, *(Line.of(row, style=MUTED) for row in wrap(term.sentence, columns - 1))]


def _graph(live: Live) -> list[Line]:
    plain = live.metrics.plain_tokens_per_second if live.metrics else None
    return graph(live.minute, None if plain is None else float(f"{plain:.3g}"))


def _drafters(live: Live) -> list[Line]:
    return drafter_lines(live.metrics.by_drafter) if live.metrics else []


def _side(live: Live, digits_width: int) -> list[Line]:
    lines = [*headline(live, digits_width, WIDTH), *_graph(live)]
    lines += [Line.of("last minute", style=MUTED), BLANK]
    if drafters := _drafters(live):
        lines += [Line.of("who drafted              accepted", style=MUTED), *drafters]
    if words := panel_words(live.session):
        answers = f"in {live.answers:,} answer{'' if live.answers == 1 else 's'}"
        lines += [BLANK] if drafters else []
        lines += [Line.of(f"this session  {words}", SESSION), Line.of(f"{'':14}{answers}", SESSION)]
    return lines


def _strip(live: Live, layout: Layout, columns: int) -> list[Line]:
    first, rows = summary(live, columns), _graph(live)
    if layout is Layout.NARROW:
        return [first, *rows, *_filled(_drafters(live), _DRAFTERS_IN_NARROW_STRIP)]
    return [first, *beside(rows, _filled(_drafters(live), _DRAFTERS_IN_STRIP), WIDTH + _GAP)]


def _details(metrics: ReplyMetrics, layout: Layout) -> list[Line]:
    in_a_row, numbers = accepted_in_a_row(metrics.accepted_lengths), counts(metrics)
    time, limit = time_spent(metrics), memory_limit(metrics)
    if layout is not Layout.STRIP:
        title = [Line(Content.assemble(("Details", "bold"), f"{'':17}F2 closes")), BLANK]
        lines = [*in_a_row, BLANK, *time, BLANK, *limit, BLANK, *numbers]
        return [*title, *lines] if layout is Layout.SIDE else lines
    left, right = [*in_a_row, BLANK, *numbers], [*time, BLANK, *limit]
    return beside(left, _filled(right, len(left)), WIDTH + _GAP)


def _filled(lines: list[Line], count: int) -> list[Line]:
    """So many lines, the further ones blank."""
    return [*lines[:count], *[BLANK] * (count - len(lines))]
