"""The live panel: beside the conversation, or a strip above the prompt where that is too narrow."""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalGroup, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.tui.live import Live
from app.tui.panel import terms
from app.tui.panel.details import Details
from app.tui.panel.drafter_rows import DrafterRows
from app.tui.panel.figure_row import FigureRow
from app.tui.panel.graph import Graph
from app.tui.panel.headline import Headline, Summary, panel_words
from app.tui.panel.legend import Legend
from app.tui.store import Store
from app.tui.typed_app import typed_app

_PAGES = ("-figures", "-details", "-legend")
_WHO = "who drafted              accepted"
_DETAILS_TITLE = Content.assemble(("Details", "bold"), "                 F2 closes")


class Panel(Vertical):
    """Figures of the newest answer; its layout follows the class that BREAKPOINTS give a screen."""

    app = typed_app
    BINDINGS: ClassVar = [
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]
    SCOPED_CSS = False
    DEFAULT_CSS: ClassVar[str] = """
    Panel { display: none; width: 1fr; height: auto; padding: 0 1; }
    Panel { border-top: solid $panel-lighten-2; }
    Panel > VerticalScroll { height: auto; max-height: 50vh; scrollbar-size: 0 0; }
    Panel Legend, Panel #figures, Panel Details, Panel .title { display: none; }
    Panel.-legend Legend, Panel.-figures #figures, Panel.-details Details { display: block; }
    Panel #figures, Panel .middle { height: auto; }
    Panel Headline, Panel .side { display: none; }
    Panel DrafterRows { max-height: 2; overflow: hidden; }
    Panel Details > VerticalGroup { height: auto; }
    Panel .explanation { display: none; color: $text-muted; }
    Panel.-legend .explanation { display: none !important; }
    Panel .caption { color: $text-muted; }

    .-normal Panel .middle { layout: horizontal; height: 3; }
    .-normal Panel .minute { width: 41; }
    .-normal Panel DrafterRows { max-height: 3; }
    .-normal Panel Details { layout: grid; grid-size: 2; grid-rows: auto; height: auto;
        grid-columns: 41 38; }
    .-normal Panel Details .bars { height: 3; }
    .-normal Panel .explanation { display: block; height: 1; text-wrap: nowrap;
        text-overflow: ellipsis; }

    .-wide Panel { width: 40; height: 1fr; padding: 0 0 0 1; border-top: none;
        border-left: solid $panel-lighten-2; }
    .-wide Panel > VerticalScroll { height: 1fr; max-height: 100%; }
    .-wide Panel Headline, .-wide Panel .side { display: block; }
    .-wide Panel Summary { display: none; }
    .-wide Panel.-details .title { display: block; height: 2; }
    .-wide Panel .minute { margin: 0 0 1 0; height: auto; }
    .-wide Panel DrafterRows { max-height: 8; margin: 0 0 1 0; }
    .-wide Panel Details { margin: 0 0 1 0; }
    .-wide Panel #session { height: 3; }
    .-wide Panel .explanation { display: block; height: 3; }
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._summary = Summary()
        self._headline = Headline()
        self._graph = Graph(terms.MINUTE.sentence)
        self._drafters = DrafterRows()
        self._session = FigureRow(terms.SESSION.sentence, classes="side")
        self._session.id = "session"
        self._details = Details()
        self._explanation = FigureRow("", classes="explanation")
        self._explanation.can_focus = False
        self._explained: FigureRow | None = None
        """The row under the mouse or with the focus."""

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Legend()
            with VerticalGroup(id="figures"):
                yield self._summary
                yield self._headline
                with Container(classes="middle"):
                    with VerticalGroup(classes="minute"):
                        yield self._graph
                        yield Static("last minute", classes="side caption")
                    with VerticalGroup(classes="who"):
                        yield Static(_WHO, classes="side caption")
                        yield self._drafters
                yield self._session
            yield Static(_DETAILS_TITLE, classes="title")
            yield self._details
            yield self._explanation

    def on_mount(self) -> None:
        self.watch(self._store, "live", self._show)
        self.watch(self._store, "is_panel_shown", self._show_or_hide)
        self.watch(self._store, "shows_details", self._turn_page)

    def _show_or_hide(self, is_shown: bool) -> None:
        self.display = is_shown
        self._show(self._store.live)

    def _turn_page(self) -> None:
        self._show(self._store.live)

    def _show(self, live: Live) -> None:
        """Show the newest figures: one paint, of the rows that changed."""
        if not self.display:
            return
        page = self._page(live)
        with self.app.batch_update():
            for name in _PAGES:
                self.set_class(name == page, name)
            if page == "-figures":
                self._show_figures(live)
            elif page == "-details":
                self._details.show(live.metrics)
            self._explain()

    def _page(self, live: Live) -> str:
        if live.metrics is None and not live.minute:
            return "-legend"
        return "-details" if self._store.shows_details else "-figures"

    def _show_figures(self, live: Live) -> None:
        metrics = live.metrics
        self._summary.show_live(live)
        self._headline.show(live)
        if metrics is not None:
            self._graph.show_minute(live.minute, metrics.plain_tokens_per_second)
        self._drafters.show(metrics.by_drafter if metrics else {})
        words = panel_words(live.session)
        plural = "s" if live.answers != 1 else ""
        in_all = f"{'':14}in {live.answers:,} answer{plural}"
        self._session.show(f"this session  {words}\n{in_all}" if words else "")

    # Explanations

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self._point_at(event.widget)

    def on_descendant_blur(self) -> None:
        self._point_at(None)

    def on_enter(self, event: events.Enter) -> None:
        self._point_at(event.node)

    def on_leave(self) -> None:
        self._point_at(self.screen.focused)

    def _point_at(self, node: object) -> None:
        """Explain this, or the first drafter if it is no row of figures."""
        self._explained = node if isinstance(node, FigureRow) and node.focusable else None
        self._explain()

    def _explain(self) -> None:
        if self._explained is not None:
            text = self._explained.help_text
        elif self._store.shows_details:
            text = terms.STEP.sentence
        else:
            text = self._drafters.help_text or terms.SPEED.sentence
        self._explanation.show(text)
