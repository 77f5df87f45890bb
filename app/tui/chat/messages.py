"""Messages on the screen: questions, and what tools were called with."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import ClassVar, cast

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.color import Color
from textual.containers import HorizontalGroup, VerticalGroup
from textual.content import Content
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widgets import Collapsible, Static

from app.chat.attachments import Attachment, AttachmentKind, pieces
from app.chat.sources import in_words, sources_of
from app.dialogue.tree import Turn, called
from app.engine.prompt_builder import CountTokens
from app.printable import printable
from app.tui.widgets import MUTED, ByWidth, LaidOutOnce, Wanted, clickable, folded
from app.tui.wording import SEPARATOR, counted
from backends.base import UsageError
from backends.base.images import Image

_OPEN = "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}"
_CLOSE = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"

_GAP = 3
"""Columns between a question and the figures of its answer, at least."""

_WIDEST = 120


def text_width(columns: int) -> int:
    """Columns of a message's text in a chat of so many, without margins, rule and scrollbar."""
    return max(1, min(columns - 4, _WIDEST) - 2)


class MessageView(LaidOutOnce, VerticalGroup, can_focus=True):
    """A question or an answer, of which one version is shown; the focus selects it."""

    BINDINGS: ClassVar = [
        Binding("left", "version(-1)", "earlier version"),
        Binding("right", "version(1)", "later version"),
    ]
    DEFAULT_CSS: ClassVar[str] = (
        f"MessageView {{ max-width: {_WIDEST}; }}"
        """
    MessageView { margin: 0 2 1 1; }
    MessageView.-outside, MessageView.-after-edited { opacity: 55%; }
    MessageView .versions {
        width: auto; height: 1; margin: 0 0 0 2; color: $text-muted; display: none;
    }
    MessageView .versions:hover { text-style: underline; }
    """
    )

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        self._place = self._versions = 1
        self._label = Static(classes="versions")

    @property
    def has_versions(self) -> bool:
        return self._versions > 1

    def show_versions(self, place: int, count: int) -> None:
        self._place, self._versions = place, count
        self._label.update(Content(f"{_OPEN}{place}/{count}{_CLOSE}"))
        self._label.display = count > 1
        self.set_class(count == 1, "-only")

    @abstractmethod
    def mark(self, start: int, end: int) -> None:
        """Mark a part of the text as what was found; nothing if it is empty."""

    @abstractmethod
    def row_of(self, start: int) -> int:
        """The row that a place of the text stands in, from the top of the message."""

    def action_version(self, step: int) -> None:
        self.post_message(Wanted("show_version", step, self.turn))

    def on_click(self, event: events.Click) -> None:
        """Show the version before or after, where its side of the label is clicked, in a ring."""
        if event.widget is self._label:
            event.stop()
            step = -1 if event.x < self._label.size.width // 2 else 1
            self.action_version((self._place - 1 + step) % self._versions + 1 - self._place)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        return action != "version" or self._versions > 1


class PartView(Static):
    """A part of a question; figures of its answer can stand at the right of its last row."""

    DEFAULT_CSS: ClassVar[str] = """
    PartView {
        link-color: $text-muted; link-background: transparent; link-style: none;
        link-color-hover: $text-muted; link-background-hover: transparent;
        link-style-hover: underline;
    }
    """
    _figures = ""

    def show_figures(self, figures: str, copies: Callable[[], None]) -> None:
        """Show figures, where there is room; copies: what a click on them does."""
        self._copies = copies
        if figures != self._figures:
            self._figures = figures
            self.refresh()

    def action_copy_answer(self) -> None:
        self._copies()

    @property
    def text(self) -> Content:
        return cast("Content", super().render())

    def used(self, width: int) -> int:
        """Columns that its last row takes."""
        return self.text.wrap(width)[-1].cell_length

    def render(self) -> Visual:
        return _WithFigures(self.text, self._figures) if self._figures else self.text

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        return selection.extract(self.text.plain), "\n"


class _WithFigures(ByWidth):
    """A text with figures at the right of its last row, which are not selected with it."""

    def __init__(self, text: Content, figures: str) -> None:
        super().__init__(lambda _width: text)
        self._figures = figures

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        *above, last = super().render_strips(width, height, style, options)
        click = clickable("copy_answer")
        figures = Segment(self._figures, (style + options.get_style(MUTED) + click).rich_style)
        room = width - cell_len(self._figures)
        return [
            *above,
            Strip.join([last.adjust_cell_length(room, style.rich_style), Strip([figures])]),
        ]


class AttachmentRow(VerticalGroup, can_focus=True):
    """Name and length of an attachment; Enter or a click shows its text, a passage in its place."""

    BINDINGS: ClassVar = [Binding("enter", "unfold", "unfold")]
    DEFAULT_CSS: ClassVar[str] = """
    AttachmentRow { color: $text-muted; }
    AttachmentRow:focus > .name { color: $text-primary; background: $primary 20%; }
    AttachmentRow > .name { text-wrap: nowrap; text-overflow: ellipsis; }
    AttachmentRow > .contents { padding: 0 0 0 2; }
    """

    def __init__(
        self, attachment: Attachment, count_tokens: CountTokens, *, is_unfolded: bool = False
    ) -> None:
        super().__init__()
        self._attachment = attachment
        self._count_tokens = count_tokens
        self._tokens = ""
        self._is_unfolded = is_unfolded
        self._row = Static(self._head(), classes="name")

    def compose(self) -> ComposeResult:
        yield self._row
        if self._is_unfolded:
            yield self._contents()

    def _contents(self) -> Static:
        shown = Static(_shown(self._attachment.text), classes="contents")
        if self._attachment.image is not None:
            self.run_worker(self._paint(shown, self._attachment.image))
        return shown

    async def _paint(self, shown: Static, image: Image) -> None:
        with suppress(UsageError):  # a damaged one stays its name and size
            shown.update(await asyncio.to_thread(_in_blocks, image))

    def on_mount(self) -> None:
        self.run_worker(self._count(), exit_on_error=False)

    async def _count(self) -> None:
        if self._attachment.kind is AttachmentKind.IMAGE:
            self._tokens = f"{SEPARATOR}{self._attachment.text}"
            self._row.update(self._head())
            return
        future = asyncio.wrap_future(self._count_tokens(self._attachment.text))
        tokens = await asyncio.shield(future)  # the engine still answers a cancelled row
        self._tokens = f"{SEPARATOR}{counted(tokens, 'token') if tokens else 'empty'}"
        self._row.update(self._head())

    def _head(self) -> Content:
        mark = "▾" if self._is_unfolded else "▸"
        return Content(f"{mark} {self._attachment.title}{self._tokens}")

    async def action_unfold(self) -> None:
        for source in sources_of([self._attachment]).values():
            self.post_message(Wanted("show_passage", source))
            return
        self._is_unfolded = not self._is_unfolded
        self._row.update(self._head())
        if self._is_unfolded:
            await self.mount(self._contents())
        else:
            await self.query(".contents").remove()

    async def on_click(self, event: events.Click) -> None:
        event.stop()
        if not self.screen.get_selected_text():
            await self.action_unfold()


_MOST_SHOWN = 200_000
"""Characters of an attachment that are laid out; more would hold up the app."""


def _shown(text: str) -> Content:
    """The text of an attachment, each page with its number above it."""
    pages = text[:_MOST_SHOWN].split("\f")
    if len(pages) > 1:
        pages = [f"── page {number} ──\n{page}" for number, page in enumerate(pages, 1)]
    shown = Content("\n\n".join(map(printable, pages)))
    left = len(text) - _MOST_SHOWN
    return shown + Content(f"\n… {left:,} more characters") if left > 0 else shown


def _in_blocks(image: Image) -> Content:
    """An image in half blocks, two of its pixels a cell, which every terminal with colours has.

    Protocols for pictures are not used: to find out whether a terminal has one, it must be asked
    while Textual reads its keys.
    """
    columns, rows = _MOST_BLOCKS
    picture = image.picture((columns, 2 * rows))
    data, width = picture.tobytes(), picture.width
    pixels = [Color(data[at], data[at + 1], data[at + 2]) for at in range(0, len(data), 3)]
    lines = [pixels[at : at + width] for at in range(0, len(pixels), width)]
    cells: list[tuple[str, Style] | str] = []
    for above, below in zip_longest(lines[::2], lines[1::2], fillvalue=[None] * width):
        cells += (("▀", Style(below, above)) for above, below in zip(above, below, strict=True))
        cells.append("\n")
    return Content.assemble(*cells[:-1])


_MOST_BLOCKS = 24, 12
"""Columns and rows of an image that is shown."""

_MOST_FILES = 5
"""Files of a question that stand in rows of their own; those of a folder may be many."""


class QuestionView(MessageView):
    """A question as it was typed, with its attachments folded below it."""

    BINDINGS: ClassVar = [Binding("enter", "edit", "edit")]
    DEFAULT_CSS: ClassVar[str] = """
    QuestionView { border-left: outer $primary; background: $boost; padding: 0 0 0 1; }
    QuestionView:focus { border-left: thick $primary; }
    QuestionView Collapsible {
        margin: 0; padding: 0; border: none; background: transparent; color: $text-muted;
    }
    QuestionView Contents { padding: 0 0 0 2; }
    QuestionView .text { width: 1fr; }
    """

    def __init__(self, turn: Turn, count_tokens: CountTokens) -> None:
        super().__init__(turn)
        self._count_tokens = count_tokens
        self._text: PartView | None = None
        """Shows all of the text, if no paste stands in it."""
        self._shown = [*self._parts()]
        parts = (one for one in reversed(self._shown) if isinstance(one, PartView))
        self._last = next(parts, None)

    def compose(self) -> ComposeResult:
        first, *others = self._shown
        with HorizontalGroup():
            yield first
            yield self._label
        yield from others
        if len(files := [*self._rows(AttachmentKind.FILE)]) > _MOST_FILES:
            yield Collapsible(*files, title=counted(len(files), "file"), collapsed=True)
        if passages := [*self._rows(AttachmentKind.PASSAGE)]:
            title = in_words(sources_of(self.turn.attachments).values())
            yield Collapsible(*passages, title=title, collapsed=True)

    def has_room(self, figures: str, width: int) -> bool:
        """Whether figures fit on the last row of text, of a width."""
        if self._last is self._shown[0] and self.has_versions:
            width -= len(f"  {_OPEN}{self._place}/{self._versions}{_CLOSE}")
        used = self._last.used(max(1, width)) if self._last is not None else width
        return used + _GAP + cell_len(figures) <= width

    def show_figures(self, figures: str, copies: Callable[[], None]) -> None:
        """Show those of the answer beside its text, none if empty; a click on them copies it.

        Beside a file they would be taken for the file's.
        """
        if self._last is not None:
            self._last.show_figures(printable(figures), copies)

    def _parts(self) -> Iterator[PartView | AttachmentRow]:
        """The text, with a folded line in place of each paste, and one for each file below."""
        text, attachments = self.turn.text, self.turn.attachments
        for piece in pieces(text, attachments):
            if isinstance(piece, Attachment):
                yield AttachmentRow(piece, self._count_tokens)
            elif piece.strip() or piece == text:
                shown = piece if piece == text else piece.strip()  # spaces set it off from a paste
                part = PartView(Content(printable(shown)), classes="text")
                self._text = part if piece == text else None
                yield part
        files = [*self._rows(AttachmentKind.FILE)]
        yield from files if len(files) <= _MOST_FILES else ()
        yield from self._rows(AttachmentKind.IMAGE)

    def _rows(self, kind: AttachmentKind) -> Iterator[AttachmentRow]:
        attached = (one for one in self.turn.attachments if one.kind is kind)
        return (AttachmentRow(one, self._count_tokens) for one in attached)

    def mark(self, start: int, end: int) -> None:
        if self._text is not None:
            self._text.update(Content(printable(self.turn.text)).stylize("reverse", start, end))

    def row_of(self, start: int) -> int:
        if self._text is None:
            return 0
        before = Content(printable(self.turn.text[:start]))
        return max(0, len(before.wrap(max(1, self._text.size.width))) - 1)

    def action_edit(self) -> None:
        self.post_message(Wanted("edit_question", self.turn))


class CallView(MessageView):
    """What a tool was called with, and its result, folded; unfolded while the user is asked."""

    DEFAULT_CSS: ClassVar[str] = """
    CallView { padding: 0 0 0 2; }
    CallView:focus { border-left: outer $primary; padding: 0 0 0 1; }
    CallView .line { color: $text-muted; padding: 0 0 0 2; }
    CallView.-asked .line { color: $text-warning; }
    """

    def __init__(self, turn: Turn, count_tokens: CountTokens) -> None:
        super().__init__(turn)
        self._count_tokens = count_tokens
        self._line = Static(classes="line")
        self._shown: tuple[str, str, bool] | None = None

    def compose(self) -> ComposeResult:
        yield self._line
        yield self._label

    def follow(self, line: str, *, is_asked: bool) -> None:
        """Show the call as it is now, and a line below it."""
        if self._shown == (self.turn.text, line, is_asked):
            return
        self._shown = self.turn.text, line, is_asked
        self._line.update(folded(printable(line)))
        self._line.display = bool(line)
        self.set_class(is_asked, "-asked")
        if self.is_attached:
            self._show_row()

    def on_mount(self) -> None:
        self._show_row()

    def _show_row(self) -> None:
        name, arguments = called(self.turn)
        text = "\n\n".join(filter(None, [arguments, self.turn.text]))
        call = Attachment(AttachmentKind.CALL, f"{name} {arguments}", text)
        is_asked = self.has_class("-asked")
        self.query(AttachmentRow).remove()
        self.mount(AttachmentRow(call, self._count_tokens, is_unfolded=is_asked), before=self._line)

    def mark(self, start: int, end: int) -> None:
        self.query(".contents").set_class(end > start, "-found")

    def row_of(self, start: int) -> int:  # noqa: ARG002 - the result is folded
        return 0
