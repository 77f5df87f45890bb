"""The live panel: beside the conversation, or a strip above the prompt where that is too narrow."""

from collections.abc import Sequence
from enum import Enum
from textwrap import wrap
from typing import ClassVar, Self

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.css.styles import RulesMap
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import RenderOptions

from app.chat.sources import Source, in_words
from app.engine.metrics import ReplyMetrics
from app.printable import one_line
from app.tui.panel import figures
from app.tui.panel.graph import BLANK, SESSION, SPEED, STEP, Line, Term, beside, drafter_term, graph
from app.tui.store import Live, Store
from app.tui.widgets import MUTED, Wanted, typed_app
from app.tui.wording import ellipsised

WIDTH = 38
_SESSION = "this session  "
_GAP = 2
_DRAFTERS_IN_STRIP = 3
_DRAFTERS_IN_NARROW_STRIP = 2


class Layout(Enum):
    """Where the panel is: beside the conversation, or above the prompt of a narrower screen."""

    SIDE = 110
    STRIP = 80
    NARROW = 0

    @classmethod
    def of(cls, columns: int) -> Self:
        return next(layout for layout in cls if columns >= layout.value)


def is_empty(live: Live) -> bool:
    """Whether there are no figures of the model in use."""
    return live.metrics is None and not live.minute


def default_term(live: Live, details: ReplyMetrics | None) -> Term | None:
    """What is explained while no figure is pointed at: the first drafter, or a step."""
    if is_empty(live):
        return None
    if details is not None:
        return STEP
    first = figures.first_drafter(live.metrics.by_drafter) if live.metrics else ""
    return drafter_term(first) if first else SPEED


def explanation(term: Term | None, layout: Layout, columns: int) -> list[Line]:
    if term is None or layout is Layout.NARROW:
        return []
    if layout is Layout.STRIP:
        text = Content.styled(term.sentence, MUTED)
        return [Line(text.truncate(columns, ellipsis=True))]
    return [Line.of(row, style=MUTED) for row in wrap(term.sentence, columns - 1)]


def _graph(live: Live) -> list[Line]:
    return graph(live.minute, None if live.plain is None else float(f"{live.plain:.3g}"))


def _drafters(live: Live) -> list[Line]:
    return figures.drafter_lines(live.metrics.by_drafter) if live.metrics else []


def _side(live: Live, digits: int, drafters: int) -> list[Line]:
    """Beside the conversation, with room for so many columns of digits and so many drafters."""
    lines = [*figures.headline(live, digits, WIDTH), *_graph(live)]
    lines += [Line.of("last minute", style=MUTED), BLANK]
    if drafters:
        lines.append(Line.of(f"{'who drafted':<30}accepted", style=MUTED))
        lines += [*_filled(_drafters(live), drafters), BLANK]
    words = figures.shortened(live.session.panel_words, WIDTH - len(_SESSION))
    if words and live.answers > 1:  # that of one answer stands above
        answers = f"in {live.answers:,} answers"
        lines.append(Line(Content.assemble(_SESSION, figures.warned(words)), SESSION))
        lines += [Line.of(" " * len(_SESSION) + answers, SESSION), BLANK]
    return lines


def _sources(sources: Sequence[Source]) -> list[Line]:
    if not sources:
        return []
    rows = [(term_of(one), f"[{one.number}] {one.place.rpartition('/')[2]}") for one in sources]
    lines = [Line.of(ellipsised(one_line(text), WIDTH), term) for term, text in rows]
    return [Line.of(in_words(sources), style=MUTED), *lines, BLANK]


def term_of(source: Source) -> Term:
    return Term(f"[{source.number}]", f"is {one_line(source.place)}; Enter opens it", " ")


def _strip(live: Live, layout: Layout, columns: int) -> list[Line]:
    first, rows = figures.summary(live, columns), _graph(live)
    if layout is Layout.NARROW:
        return [first, *rows, *_filled(_drafters(live), _DRAFTERS_IN_NARROW_STRIP)]
    return [first, *beside(rows, _filled(_drafters(live), _DRAFTERS_IN_STRIP), WIDTH + _GAP)]


def _details(metrics: ReplyMetrics, layout: Layout) -> list[Line]:
    title = [Line(Content.assemble(("Details", "bold"), f"{'':17}F2 closes")), BLANK]
    if metrics.told_by_server is not None:
        served = figures.told(metrics.told_by_server, has_ended=metrics.server_ended)
        return [*title, *served, BLANK, figures.start(metrics), BLANK]
    in_a_row = figures.accepted_in_a_row(metrics.accepted_lengths)
    numbers, limit = figures.counts(metrics), figures.memory_limit(metrics)
    time = [*figures.time_spent(metrics), figures.start(metrics)]
    if layout is not Layout.STRIP:
        lines = [*in_a_row, BLANK, *time, BLANK, *limit, BLANK, *numbers]
        return [*title, *lines, BLANK] if layout is Layout.SIDE else lines
    left, right = [*in_a_row, BLANK, *numbers], [*time, BLANK, *limit]
    return beside(left, _filled(right, len(left)), WIDTH + _GAP)


def _filled(lines: list[Line], count: int) -> list[Line]:
    return [*lines[:count], *[BLANK] * (count - len(lines))]


_ONE_LINE: RulesMap = {"text_wrap": "nowrap"}


class Panel(ScrollView, can_focus=True):
    """Figures of the newest answer, painted by one widget: each further one slows every paint.

    Its place follows the class that BREAKPOINTS give the screen.
    """

    app = typed_app
    COMPONENT_CLASSES: ClassVar[set[str]] = {"panel--selected"}
    SCOPED_CSS = False
    DEFAULT_CSS: ClassVar[str] = """
    Panel { display: none; width: 1fr; height: auto; max-height: 50vh; padding: 0 1;
        border-top: solid $border-blurred; scrollbar-size: 0 0; background: $background; }
    .-narrow Panel.-details { max-height: 40vh; }
    Panel > .panel--selected { background: $primary 25%; }
    .-wide Panel { width: 41; height: 1fr; max-height: 100%;
        border-top: none; border-left: solid $border-blurred; }
    """
    BINDINGS: ClassVar = [
        Binding("down,tab", "select(1)", "next figure", show=False),
        Binding("up,shift+tab", "select(-1)", "previous figure", show=False),
        Binding("enter", "open", "open the passage", show=False),
    ]

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._lines: list[Line] = []
        self._digits, self._drafters = figures.digits_width(None), 0
        """Columns and rows kept for figures: they only grow, so that nothing moves."""
        self._details = store.live.metrics
        """Figures of the newest answer that has any."""
        self._selected: Term | None = None
        """What the cursor is at while the panel has the focus."""
        self._hovered: Term | None = None

    def on_mount(self) -> None:
        for attribute in ("is_panel_shown", "shows_details"):
            self.watch(self._store, attribute, self._show_or_hide)
        self.watch(self._store, "live", self._follow)
        self.watch(self._store, "sources", self._follow_sources, init=False)

    @property
    def help_text(self) -> str:
        """The explanation of the figure that is pointed at; empty if none is."""
        return self._pointed_at.sentence if self._pointed_at else ""

    @property
    def text(self) -> str:
        return "\n".join(line.content.plain for line in self._lines)

    @property
    def _pointed_at(self) -> Term | None:
        return self._hovered or self._selected

    # Figures

    def _show_or_hide(self) -> None:
        self.display = self._store.is_panel_shown
        self.set_class(self._store.shows_details, "-details")
        self._show()

    def _follow(self, live: Live) -> None:
        self._digits = max(self._digits, figures.digits_width(live.rate))
        by_drafter = live.metrics.by_drafter if live.metrics else ()
        self._drafters = max(self._drafters, len(by_drafter))
        self._details = live.metrics or (None if is_empty(live) else self._details)
        self._show()

    def _follow_sources(self) -> None:
        self._show()
        if self._selected is not None and self._selected not in self._terms:
            self._select(None)  # a passage of another question

    def _show(self) -> None:
        """Show the newest figures, painting only the lines that differ."""
        if not self.display:
            return
        before, self._lines = self._lines, self._build(self.app.size.width)
        if len(before) != len(self._lines):
            self.virtual_size = Size(self.size.width, len(self._lines))
            self.refresh(layout=True)
            return
        for y, (old, new) in enumerate(zip(before, self._lines, strict=True)):
            if not new.is_same(old):
                self.refresh_line(y)

    def _build(self, columns: int) -> list[Line]:
        layout, live = Layout.of(columns), self._store.live
        width = WIDTH if layout is Layout.SIDE else columns - 2
        details = self._details if self._store.shows_details else None
        if is_empty(live):
            lines = figures.legend()
        elif details is not None:
            lines = _details(details, layout)
        elif layout is Layout.SIDE:
            lines = _side(live, self._digits, self._drafters)
            lines += _sources(self._store.sources)
        else:
            lines = _strip(live, layout, width)
        term = self._pointed_at or default_term(live, details)
        return [*lines, *explanation(term, layout, width)]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        del container, width  # any height is fine, and the layout gives the width
        return len(self._build(viewport.width))

    def on_resize(self) -> None:
        self._lines = []
        self._show()

    def render_line(self, y: int) -> Strip:
        width, y = self.size.width, y + self.scroll_offset.y
        style = self.visual_style
        if y >= len(self._lines):
            return Strip.blank(width, style.rich_style)
        line = self._lines[y]
        if self.has_focus and line.term is not None and line.term == self._selected:
            style += self.get_visual_style("panel--selected")
        options = RenderOptions(self._get_style, _ONE_LINE)
        strips = line.content.render_strips(width, 1, style, options)
        return next(iter(strips), Strip([])).adjust_cell_length(width, style.rich_style)

    # Explanations

    def action_select(self, step: int) -> None:
        """Select the next figure that has an explanation; beyond the last one, leave the panel."""
        terms = self._terms
        at = terms.index(self._selected) + step if self._selected in terms else 0
        if 0 <= at < len(terms):
            self._select(terms[at])
        elif step > 0:
            self.screen.focus_next()
        else:
            self.screen.focus_previous()

    def on_focus(self) -> None:
        self._select(next(iter(self._terms), None))

    def on_blur(self) -> None:
        self._select(None)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        y = event.get_content_offset(self)
        line = y.y + self.scroll_offset.y if y is not None else len(self._lines)
        self._hover(self._lines[line].term if line < len(self._lines) else None)

    def on_leave(self) -> None:
        self._hover(None)

    def action_open(self) -> None:
        """Show the passage that is pointed at."""
        sources = (one for one in self._store.sources if term_of(one) == self._pointed_at)
        if (source := next(sources, None)) is not None:
            self.post_message(Wanted("show_passage", source))

    def on_click(self) -> None:
        self.action_open()

    @property
    def _terms(self) -> list[Term]:
        return list(dict.fromkeys(line.term for line in self._lines if line.term is not None))

    def _select(self, term: Term | None) -> None:
        self._selected = term
        self._show()
        self.refresh()
        first = next((y for y, line in enumerate(self._lines) if term and line.term == term), None)
        if first is not None:
            self.scroll_to_region(Region(0, first, 1, 1), animate=False)

    def _hover(self, term: Term | None) -> None:
        if term != self._hovered:
            self._hovered = term
            self._show()
