"""The live panel: beside the conversation, or a strip above the prompt where that is too narrow."""

from typing import ClassVar

from textual import events
from textual.binding import Binding
from textual.css.styles import RulesMap
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import RenderOptions

from app.tui.live import Live
from app.tui.panel.line import Line
from app.tui.panel.pages import WIDTH, Layout, Room, default_term, explanation, is_empty, page
from app.tui.panel.terms import Term
from app.tui.store import Store
from app.tui.typed_app import typed_app

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
    Panel > .panel--selected { background: $primary 25%; }
    .-wide Panel { width: 40; height: 1fr; max-height: 100%; padding: 0 0 0 1;
        border-top: none; border-left: solid $border-blurred; }
    """
    BINDINGS: ClassVar = [
        Binding("down,tab", "select(1)", "next figure", show=False),
        Binding("up,shift+tab", "select(-1)", "previous figure", show=False),
    ]

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._lines: list[Line] = []
        self._room = Room()
        self._details = store.live.metrics
        """Figures of the newest answer that has any."""
        self._selected: Term | None = None
        """What the cursor is at while the panel has the focus."""
        self._hovered: Term | None = None

    def on_mount(self) -> None:
        self.watch(self._store, "is_panel_shown", self._show_or_hide)
        self.watch(self._store, "shows_details", self._show)
        self.watch(self._store, "live", self._follow)

    @property
    def help_text(self) -> str:
        """The explanation of the figure that is pointed at; empty if none is."""
        return self._pointed_at.sentence if self._pointed_at else ""

    @property
    def text(self) -> str:
        """What it shows, line by line."""
        return "\n".join(line.content.plain for line in self._lines)

    @property
    def _pointed_at(self) -> Term | None:
        return self._hovered or self._selected

    # Figures

    def _show_or_hide(self, is_shown: bool) -> None:
        self.display = is_shown
        self._show()

    def _follow(self, live: Live) -> None:
        self._room = self._room.grown(live)
        self._details = live.metrics or (None if is_empty(live) else self._details)
        self._show()

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
        """The lines on a screen of so many columns."""
        layout, live = Layout.of(columns), self._store.live
        width = WIDTH if layout is Layout.SIDE else columns - 2
        details = self._details if self._store.shows_details else None
        lines = page(live, details, layout, width, self._room)
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

    @property
    def _terms(self) -> list[Term]:
        """The terms of the lines, each once, from the top."""
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
