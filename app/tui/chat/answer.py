"""An answer on the screen, saved or growing; one widget paints its Markdown, and who drafted it."""

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from operator import attrgetter
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.color import Color
from textual.containers import HorizontalGroup
from textual.content import Content, Span
from textual.geometry import Offset, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widget import Widget
from textual.widgets import Collapsible, Static

from app.chat.sources import Source
from app.dialogue.tree import Turn, calls_after, sources_for
from app.engine.reply import Reply
from app.printable import printable
from app.tools.toolbox import before_calls
from app.tui.chat.colours import DraftedRuns, hues_over
from app.tui.chat.markdown import Document, Hues, Line, Row, TableLine, TextLine, cited_by
from app.tui.chat.messages import MessageView
from app.tui.store import Store
from app.tui.terminal import copy
from app.tui.widgets import LaidOutOnce, Wanted, folded, typed_app
from app.tui.wording import counted, joined, seconds
from backends.chat.reply_form import split

_FADE_SECONDS = 0.5
"""Between two looks at the colours of a finished answer."""

_CPU_SHARE = 0.035
"""Largest share of one core for painting an answer: it takes processor time from the model."""

_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.08, 0.6


def _no_hues(_start: int, _end: int) -> list[Span]:
    return []


class GrowingMarkdown(LaidOutOnce, Widget):
    """Markdown that grows: it wraps only what is new, and paints only the lines in view.

    hues: the drafted parts of a range of the Markdown, as spans of it. sources: the passages that
    it may cite.
    """

    app = typed_app
    DEFAULT_CSS: ClassVar[str] = "GrowingMarkdown { width: 1fr; height: auto; }"

    def __init__(
        self,
        text: str = "",
        hues: Callable[[int, int], list[Span]] = _no_hues,
        sources: Mapping[int, Source] | None = None,
    ) -> None:
        super().__init__(classes="answer")
        self._sources = sources or {}
        self._pointed: int | None = None
        """Which citation the keyboard is at."""
        self.document = Document(text, frozenset(self._sources))
        self._hues = hues
        self._rows: list[tuple[int, Row]] = []
        """Rows of the screen, each with the number of its line."""
        self._ends: list[int] = []
        """How many rows there are up to the end of each line."""
        self._width = 0
        self._strips: dict[int, Strip] = {}
        self._laid: tuple[Line | None, list[Span], Hues] = (None, [], ())
        self._has_cursor = self._has_hues = False

    # Text

    def append(self, text: str) -> None:
        self._follow(self.document.append(text))

    def show(self, text: str) -> None:
        self.document = Document(text, frozenset(self._sources))
        self._follow(0)

    def settle(self) -> None:
        """Complete what is only sketched while it grows."""
        self._follow(self.document.complete())

    def set_cursor(self, is_shown: bool) -> None:
        if is_shown != self._has_cursor:
            self._has_cursor = is_shown
            self._follow(len(self._ends))

    def set_hues(self, are_shown: bool) -> None:
        """Tell whether hues mean who drafted; if not, code has colours."""
        if are_shown != self._has_hues:
            self._has_hues = are_shown
            self._repaint_rows(0)

    def repaint(self, start: int) -> None:
        """Paint anew from a position of the Markdown on: hues may have changed."""
        lines = self.document.lines
        number = bisect_right(lines, start, key=attrgetter("start")) - 1
        self._repaint_rows(self._ends[number - 1] if 0 < number <= len(self._ends) else 0)

    def _follow(self, changed: int) -> None:
        """Wrap anew from a line on; the screen needs no layout if the rows are as many."""
        first = max(0, min(changed, len(self._ends) - 1))  # the last one may have had the cursor
        height, kept = len(self._rows), self._ends[first - 1] if first else 0
        del self._ends[first:], self._rows[kept:]
        is_as_high = self._width and len(self._wrapped(self._width)) == height
        self._repaint_rows(kept)
        if not is_as_high:
            self.clear_cached_dimensions()
            self.refresh(layout=True)

    def _repaint_rows(self, first: int) -> None:
        self._strips = {y: strip for y, strip in self._strips.items() if y < first}
        self.refresh()

    def _wrapped(self, width: int) -> Sequence[tuple[int, Row]]:
        if width != self._width:
            self._width = width
            self._rows.clear()
            self._ends.clear()
            self._strips.clear()
        lines = self.document.lines
        for number in range(len(self._ends), len(lines)):
            has_cursor = self._has_cursor_at(number)
            rows = lines[number].rows(width, has_cursor=has_cursor)
            self._rows += ((number, row) for row in rows)
            self._ends.append(len(self._rows))
        return self._rows

    def _has_cursor_at(self, number: int) -> bool:
        return self._has_cursor and number == len(self.document.lines) - 1

    # Painting

    def get_content_width(self, container: Size, viewport: Size) -> int:
        del viewport
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        del container, viewport
        rows = len(self._wrapped(width)) if width else 0
        return rows + bool(rows)  # and a blank one

    def notify_style_update(self) -> None:
        self._strips.clear()
        super().notify_style_update()

    def selection_updated(self, selection: Selection | None) -> None:
        self._strips.clear()
        super().selection_updated(selection)

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        rows = self._wrapped(width)
        if y >= len(rows):
            return Strip.blank(width, self.visual_style.rich_style)
        if y not in self._strips:
            self._strips[y] = self._painted(y, *rows[y])
        return self._strips[y]

    def _painted(self, y: int, number: int, row: Row) -> Strip:
        width, style = self.size.width, self.visual_style
        line = self.document.lines[number]
        if line.code is not None:
            style += Style(background=Color.parse(self.app.theme_variables["panel"]))
        hues = self._hues_of(line)
        content = line.content(
            row, self._with_pointed(line, hues), has_cursor=self._has_cursor_at(number)
        )
        strips = [
            Visual.to_strips(self, part, part.cell_length, 1, style, apply_selection=False)[0]
            for part in (row.prefix, self._selected(y, content))
            if part.cell_length
        ]
        strip = Strip.join(strip.apply_offsets(0, y) for strip in strips)
        return strip.adjust_cell_length(width, style.rich_style)

    def _hues_of(self, line: Line) -> Hues:
        drafted = self._hues(line.start, line.end)
        if not drafted:
            return () if self._has_hues else None
        if self._laid[:2] != (line, drafted):  # else for another row of the line
            matches = line.matches(self.document.source)
            self._laid = line, drafted, [hues_over(found, drafted) for found in matches]
        return self._laid[2]

    def row_of(self, start: int) -> int:
        """The row that a place of the Markdown stands in."""
        lines = self.document.lines
        number = max(0, bisect_right(lines, start, key=attrgetter("start")) - 1)
        self._wrapped(self.size.width)
        first = self._ends[number - 1] if number else 0
        line = lines[number]
        if not isinstance(line, TextLine):
            return first
        found = (one for text in line.matches(self.document.source) for one in text)
        place = next((one.start for one in found if one.source + one.length > start), 0)
        rows = (y for y in range(first, self._ends[number]) if self._rows[y][1].end > place)
        return next(rows, first)

    def _selected(self, y: int, content: Content) -> Content:
        selection = self.text_selection
        span = None if selection is None else selection.get_span(y)
        if span is None:
            return content
        start, end = span
        style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
        return content.stylize(style, start, len(content) if end == -1 else end)

    # The mouse

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        text, before = "", -1
        for y, (number, row) in enumerate(self._rows):
            if (span := selection.get_span(y)) is None:
                continue
            line = self.document.lines[number]
            part = line.content(row, (), has_cursor=False).plain
            goes_on = before < 0 or (number == before and line.is_joined)
            text += "" if goes_on else "\n"
            text += part[span[0] :] if span[1] == -1 else part[slice(*span)]
            before = number
        return text, "\n"

    def on_click(self, event: events.Click) -> None:
        """Copy the code; two clicks select a paragraph, or all of a block of code."""
        if event.y >= len(self._rows):
            return
        number, _ = self._rows[event.y]
        code = self.document.lines[number].code
        if event.chain == 2:
            event.prevent_default()
            self._select_block(number)
        elif code is not None and not self.screen.get_selected_text():
            self.notify(copy(self.app, code, "the code block"))

    def _select_block(self, number: int) -> None:
        lines, line = self.document.lines, self.document.lines[number]

        def belongs(other: Line) -> bool:
            is_row = isinstance(line, TableLine) and isinstance(other, TableLine)
            return is_row or (line.code is not None and line.code == other.code)

        first = number - sum(1 for _ in takewhile(belongs, reversed(lines[:number])))
        last = number + sum(1 for _ in takewhile(belongs, lines[number + 1 :]))
        top, bottom = self._ends[first - 1] if first else 0, self._ends[last] - 1
        end = Offset(self._width, bottom)
        self.screen.selections = {self: Selection(Offset(0, top), end)}

    def action_link(self, address: str) -> None:
        """Copy the address instead of opening it: the model may have made it up."""
        self.notify(copy(self.app, address, f"the address {address}"))

    def action_passage(self, number: int) -> None:
        self.post_message(Wanted("show_passage", self._sources[number]))

    # Citations

    @property
    def citations(self) -> list[tuple[Line, int, Span]]:
        """Those of passages: each with its line, which of the line's texts, and where in that."""
        return [
            (line, place, span)
            for line in self.document.lines
            for place, text in enumerate(line.contents)
            for span in text.spans
            if cited_by(span) is not None
        ]

    def point(self, step: int) -> bool:
        """Point at the next citation (1), the one before (-1) or none (0); False at the end."""
        last = len(self.citations) - 1
        at = self._pointed
        at = (0 if step > 0 else last) if at is None else at + step
        self._pointed = at if step and 0 <= at <= last else None
        self._repaint_rows(0)
        return self._pointed is not None

    def open_pointed(self) -> bool:
        """Have the passage shown whose citation is pointed at; False if none is."""
        pointed = dict(enumerate(self.citations)).get(
            -1 if self._pointed is None else self._pointed
        )
        number = cited_by(pointed[2]) if pointed else None
        if number is not None:
            self.action_passage(number)
        return number is not None

    def _with_pointed(self, line: Line, hues: Hues) -> Hues:
        if self._pointed is None or self._pointed >= len(found := self.citations):
            return hues
        pointed, place, span = found[self._pointed]
        if pointed is not line:
            return hues
        marked = [[*one] for one in hues or [()] * len(line.contents)]
        marked[place].append(Span(span.start, span.end, "reverse"))
        return marked


def _said(turn: Turn) -> str:
    """The text of an answer without calls, which follow it."""
    return before_calls(turn.text) if calls_after(turn) else turn.text


class AnswerView(MessageView):
    """An answer: its thinking, folded, its Markdown, and a line with its figures or how it ended.

    Text that a drafter supplied is coloured while it is new.
    """

    app = typed_app
    BINDINGS: ClassVar = [
        Binding("enter", "copy", "copy"),
        Binding("tab", "point(1)", "next citation"),
        Binding("shift+tab", "point(-1)", "citation before"),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    AnswerView { padding: 0 0 0 2; }
    AnswerView:focus { border-left: outer $primary; padding: 0 0 0 1; }
    AnswerView Collapsible { margin: 0; padding: 0; border: none; background: transparent; }
    AnswerView HorizontalGroup { align-horizontal: right; }
    AnswerView .line { width: 1fr; color: $text-muted; }
    AnswerView .line:hover { text-style: underline; }
    AnswerView.-no-line .line { display: none; }
    AnswerView.-no-line.-only { margin: 0 2 0 1; }
    """

    def __init__(self, turn: Turn, store: Store) -> None:
        super().__init__(turn)
        self._store = store
        self._line = Static(classes="line")
        self._shown_line: str | None = None
        parts = split(_said(turn))
        self._begin = len(_said(turn)) - len(parts.answer)
        """Where the answer begins in the text, after any thinking."""
        self.markdown = GrowingMarkdown(parts.answer, self._hues, sources_for(turn))
        self._thoughts = Static(Content(printable(parts.thinking)), classes="thoughts")
        self._folded = Collapsible(self._thoughts, title="Thinking", collapsed=True)
        self._folded.display = bool(parts.thinking)
        self._reply: Reply | None = None
        """What the text comes from while it grows."""
        self._thinks_since: float | None = None
        self._drafted = DraftedRuns()
        self._marked = (0, 0)
        """Where in the turn's text something was found."""
        self._painted_at = 0.0
        self._cpu_at_paint = 0.0

    def compose(self) -> ComposeResult:
        yield self._folded
        yield self.markdown
        with HorizontalGroup():
            yield self._line
            yield self._label

    def on_mount(self) -> None:
        self.watch(self._store, "keeps_colours", self._fade, init=False)

    def show_line(self, line: str) -> None:
        """Show figures, or how the answer ended, below it; nothing if empty."""
        if line != self._shown_line:
            self._shown_line = line
            self.set_class(not line, "-no-line")
            self._line.update(folded(printable(line)))

    @property
    def has_citations(self) -> bool:
        return bool(self.markdown.citations)

    def action_copy(self) -> None:
        """Copy the answer, or open the passage whose citation is pointed at."""
        if not self.markdown.open_pointed():
            self.notify(copy(self.app, self.turn.text, "the answer"))

    def action_point(self, step: int) -> None:
        if not self.markdown.point(step):
            (self.screen.focus_next if step > 0 else self.screen.focus_previous)()

    def on_blur(self) -> None:
        self.markdown.point(0)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "point":
            return self.has_citations
        return super().check_action(action, parameters)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self._line and not self.screen.get_selected_text():
            self.action_copy()

    # Text

    def grow(self, reply: Reply, *, is_last: bool = False) -> None:
        """Show what a reply has added to the turn, if that is due, and all of it once it has ended.

        Call it at each tick of an answer, also if it has added nothing: colours age only here.
        """
        self._reply = reply
        if is_last:
            self.follow()
        elif self.is_attached and self._is_due:
            self.paint()

    def follow(self) -> None:
        """Show the whole text of the turn, which has ended or changed elsewhere."""
        if not self.is_attached:
            return
        if self._is_growing:
            self.paint()
            self._reply = None
            self.markdown.settle()
            self._fade()
        else:
            self._show_text()

    @property
    def _is_growing(self) -> bool:
        return self._reply is not None

    @property
    def _is_due(self) -> bool:
        """Whether it is time to paint, from the processor time since the last paint began."""
        pause = time.monotonic() - self._painted_at
        cpu = time.thread_time() - self._cpu_at_paint
        return pause >= _MIN_PAUSE_SECONDS and (
            cpu <= _CPU_SHARE * pause or pause >= _MAX_PAUSE_SECONDS
        )

    def paint(self) -> None:
        self._painted_at, self._cpu_at_paint = time.monotonic(), time.thread_time()
        if self._reply is not None:
            self._drafted.follow(self._reply, self._painted_at)
        self._show_text()
        self.markdown.set_cursor(self._is_growing)
        self.markdown.set_hues(self._is_growing)
        self._age()

    def _show_text(self) -> None:
        said = _said(self.turn)
        parts = split(said)
        if parts.thinking or parts.is_thinking:
            self._show_thinking(parts.thinking, parts.is_thinking)
        begin, self._begin = self._begin, len(said) - len(parts.answer)
        shown = self.markdown.document.text
        if (begin != self._begin and shown) or not parts.answer.startswith(shown):
            self.markdown.show(parts.answer)  # it was thinking, or was changed elsewhere
        elif len(parts.answer) > len(shown):
            self.markdown.append(parts.answer[len(shown) :])

    def _show_thinking(self, thinking: str, is_thinking: bool) -> None:
        self._folded.display = True
        if is_thinking:
            self._folded.title = "Thinking…"
            self._thinks_since = self._thinks_since or time.monotonic()
        elif self._thinks_since is not None and self._reply is not None:
            tokens = counted(self._reply.thinking_tokens, "token")
            took = seconds(time.monotonic() - self._thinks_since)
            self._folded.title, self._thinks_since = joined(["Thinking", tokens, took]), None
        if not self._folded.collapsed or not is_thinking:
            self._thoughts.update(Content(printable(thinking)))

    def mark(self, start: int, end: int) -> None:
        self._marked = (start, end)
        self.markdown.repaint(0)

    def text_height(self, width: int) -> int:
        """Rows of the Markdown in so many columns."""
        return self.markdown.get_content_height(Size(), Size(), width)

    def row_of(self, start: int) -> int:
        return self.markdown.virtual_region.y + self.markdown.row_of(start - self._begin)

    # Colours

    @property
    def _ages(self) -> bool:
        return not self._store.keeps_colours and self.app.animation_level != "none"

    def _hues(self, start: int, end: int) -> list[Span]:
        """Drafted parts of a range of the Markdown, as they are coloured now, or what was found."""
        first, last = (place - self._begin for place in self._marked)
        if first < end and start < last:
            return [Span(first, last, "reverse")]
        if not (self._ages or self._store.keeps_colours or self._is_growing):
            return []
        now = self._painted_at if self._ages else None
        drafted = self._drafted.between(self._begin + start, self._begin + end, now)
        return [Span(one.start - self._begin, one.end - self._begin, one.style) for one in drafted]

    def _age(self) -> bool:
        """Paint anew what may have another hue by now; whether there is anything."""
        first = self._drafted.fade(self._painted_at) if self._ages else None
        if first is not None:
            self.markdown.repaint(max(0, first - self._begin))
        return first is not None

    def _fade(self) -> None:
        """Colour all of the answer, and age the colours of a finished one until it has none."""
        self._painted_at = time.monotonic()
        self.markdown.set_cursor(self._is_growing)
        self.markdown.repaint(0)
        fades = self._age() and not self._is_growing
        keeps = self._store.keeps_colours and self._drafted.has_any
        self.markdown.set_hues(self._is_growing or fades or keeps)
        if fades:
            self.set_timer(_FADE_SECONDS, self._fade)
