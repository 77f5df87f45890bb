"""The scrolling list of a chat's messages, of which only those near the view are mounted."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalGroup, VerticalScroll
from textual.geometry import Size
from textual.layout import DockArrangeResult
from textual.reactive import Reactive  # noqa: TC002
from textual.widget import Widget
from textual.widgets import Static

from app.dialogue.tree import Turn
from app.tui.chat.messages import MessageView
from app.tui.widgets import Wanted, in_turn, is_narrow, typed_app

PAGE = 10
"""Messages that are mounted first: each answer is several widgets."""

_STEP = 2
"""Messages that are mounted at a time while the user scrolls: of 6, a key waited 0.3 s instead of
0.1 s."""

_KEPT_SCREENS = 3
"""Messages farther from the view than this many times its height are unmounted."""

_FRAME_SECONDS = 1 / 60

MakeView = Callable[[Turn], MessageView]


class Transcript(VerticalScroll):
    """Messages of a chat; follows the end until the user scrolls up.

    make_view: makes the widget of a turn. head, tail: what stands above and below all messages.
    """

    app = typed_app
    FOCUS_ON_CLICK = False
    BINDINGS: ClassVar = [
        Binding("up", "select(-1)", "message above", show=False),
        Binding("down", "select(1)", "message below", show=False),
        Binding("home", "first", "first message", show=False),
        Binding("end", "last", "last message", show=False),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    Transcript {
        height: 1fr; padding: 1 0 0 0; align-vertical: bottom;
        scrollbar-size-vertical: 1; scrollbar-gutter: stable;
    }
    Transcript > #window { height: 1; margin: 0 0 1 3; color: $text-muted; }
    Transcript.-narrow QueueRow { margin: 0 1 0 1; }
    Transcript.-narrow QueueRow:last-child { margin: 0 1 1 1; }
    Transcript.-narrow QueueRow.-waiting { layout: vertical; }
    """

    def __init__(self, make_view: MakeView, head: Widget, *tail: Widget) -> None:
        super().__init__()
        self._make_view = make_view
        self._head = VerticalGroup(head)
        self._tail = VerticalGroup(*tail)
        self._turns: list[Turn] = []
        self._views: list[MessageView] = []
        self._first = 0
        """Index of the first mounted message."""
        self._outside = 0
        """How many messages, from the first, are outside the model's context."""
        self._pin: tuple[Widget, float] | None = None
        """A widget that stays on its row while messages above it come and go."""
        self._mounts = self._laid_out = 0
        """How often messages were mounted, and how many of these times are in the layout."""
        self._mounting = asyncio.Lock()

    def compose(self) -> ComposeResult:
        yield self._head
        yield self._tail

    def on_mount(self) -> None:
        self.anchor()

    def on_resize(self) -> None:
        self.set_class(is_narrow(self.size.width), "-narrow")
        self._fill()

    # What is shown

    @property
    def views(self) -> list[MessageView]:
        return list(self._views)

    def view_of(self, turn: Turn) -> MessageView | None:
        return next((view for view in self._views if view.turn is turn), None)

    async def show(self, turns: Sequence[Turn], *, outside: int = 0, stays: bool = False) -> None:
        """Show turns; those shown before stay as and where they are.

        outside: how many of the first ones the model does not see. stays: whether what is in view
        stays there, even if that was the end.
        """
        async with self._mounting:
            if stays:
                self.anchor(False)
            same = _same(self._turns, turns)
            is_far = self._is_following and len(turns) - self._end > PAGE
            if same < max(1, self._first) or not self._views or is_far:
                await self._show_end(turns)
            else:
                if stays and same > self._first:
                    self._pin_to(self._views[min(same - self._first, len(self._views)) - 1])
                await self._replace_after(same, turns)
            self._outside = outside
            await self._mark_outside()
        self.call_after_refresh(self._settle)

    async def mark_outside(self, outside: int) -> None:
        async with self._mounting:
            self._outside = outside
            await self._mark_outside()

    async def show_end(self) -> None:
        async with self._mounting:
            if self._end < len(self._turns):
                await self._show_end(self._turns)
                await self._mark_outside()
        self.anchor()
        self._fill()

    async def _show_end(self, turns: Sequence[Turn]) -> None:
        with self.app.batch_update():
            await self._unmount(self._views)
            self._turns, self._views = list(turns), []
            self._first = max(0, len(turns) - PAGE)
            await self._mount_until(len(turns))
        self.anchor()

    async def _replace_after(self, same: int, turns: Sequence[Turn]) -> None:
        reached_end = self._end == len(self._turns)
        if not reached_end and same == len(self._turns):
            self._turns = list(turns)  # the new ones are below those mounted
            return
        kept = max(0, same - self._first)
        with self.app.batch_update():
            await self._unmount(self._views[kept:])
            self._turns = list(turns)
            await self._mount_until(min(len(turns), self._end + PAGE))
        if self._is_following:
            await self._trim_above()

    def _fill(self) -> None:
        """Mount more messages where those mounted do not reach beyond the view."""
        self.call_after_refresh(self._mount_near)

    @property
    def _end(self) -> int:
        return self._first + len(self._views)

    @property
    def _is_following(self) -> bool:
        return self.scroll_y >= self.max_scroll_y

    async def _unmount(self, views: Sequence[MessageView]) -> None:
        gone = set(views)
        focused = self.screen.focused
        if focused is not None and gone.intersection(focused.ancestors_with_self):
            self.screen.set_focus(None)  # else Textual scrolls to what gets the focus
        self._views = [view for view in self._views if view not in gone]
        await self.remove_children(gone)

    async def _mount_until(self, end: int) -> None:
        views = [self._make_view(turn) for turn in self._turns[self._end : end]]
        if views and self.is_attached:
            await self.mount_all(views, before=self._tail)
            self._mounts += 1
            self._views += views
        self._update_edges()

    def _update_edges(self) -> None:
        self._head.display = self._first == 0
        self._tail.display = self._end == len(self._turns)
        if not self._tail.display:
            self.anchor(False)  # the end of what is mounted is not the end of the chat

    async def _mark_outside(self) -> None:
        mounted_outside = max(0, self._outside - self._first)
        for place, view in enumerate(self._views):
            view.set_class(place < mounted_outside, "-outside")
        await self.query("#window").remove()
        if self._first < self._outside < self._end:
            line = Static("the model sees from here on", id="window")
            await self.mount(line, before=self._views[mounted_outside])

    # Messages near the view

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._pin is not None:
            widget, row = self._pin
            self._pin = (widget, row + old_value - new_value)
        if self._mounting.locked():
            return
        if self._is_short_above or self._is_short_below:
            self.call_later(self._mount_near)
        elif self._tail.display and self._is_following and not self.is_anchored:
            self.call_later(self._follow_again)  # now, it would end the animation in its step

    def _follow_again(self) -> None:
        if self._tail.display and self._is_following:
            self.anchor()

    @property
    def _is_short_above(self) -> bool:
        return self._first > 0 and self.scroll_y < self.size.height

    @property
    def _is_short_below(self) -> bool:
        below = self.max_scroll_y - self.scroll_y
        return self._end < len(self._turns) and below < self.size.height

    async def _mount_near(self) -> None:
        """Mount a page of messages above or below, without moving those in view."""
        if self._mounting.locked():
            return
        if self._laid_out < self._mounts:  # messages without a height look like room above
            self.set_timer(_FRAME_SECONDS, in_turn(self, self._mount_near))
            return
        async with self._mounting:
            if self._is_short_above:
                await self._mount_above()
            elif self._is_short_below:
                await self._mount_below()
            else:
                return
            await self._mark_outside()
        self.call_after_refresh(self._settle)

    async def _mount_above(self) -> None:
        await self._trim_below()
        self._pin_to(self._views[0])
        first = max(0, self._first - _STEP)
        views = [self._make_view(turn) for turn in self._turns[first : self._first]]
        with self.app.batch_update():
            await self.mount_all(views, before=self._views[0])
            self._mounts += 1
            self._views[:0] = views
            self._first = first
            self._update_edges()

    async def _mount_below(self) -> None:
        self._pin_to(self._views[-1])
        with self.app.batch_update():
            await self._trim_above()
            await self._mount_until(min(len(self._turns), self._end + _STEP))

    async def _trim_above(self) -> None:
        limit = self.scroll_y - _KEPT_SCREENS * self.size.height
        far = list(takewhile(lambda view: view.virtual_region.bottom < limit, self._views[:-PAGE]))
        if far:
            await self._unmount(far)
            self._first += len(far)
            self._update_edges()

    async def _trim_below(self) -> None:
        limit = self.scroll_y + (_KEPT_SCREENS + 1) * self.size.height
        above = list(takewhile(lambda view: view.virtual_region.y <= limit, self._views))
        await self._unmount(self._views[max(PAGE, len(above)) :])
        self._update_edges()

    def _pin_to(self, widget: Widget) -> None:
        self._pin = (widget, widget.virtual_region.y - self.scroll_y)

    async def _settle(self) -> None:
        if self._laid_out < self._mounts:
            self.set_timer(_FRAME_SECONDS, in_turn(self, self._settle))
            return
        self._pin = None
        await self._mount_near()

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Arrange the messages; the pinned one stays on its row of the screen."""
        result = super().arrange(size, optimal)
        self._laid_out = self._mounts
        if self._pin is not None:
            widget, row = self._pin
            for placement in result.placements:
                if placement.widget is widget:
                    self._scroll_silently(max(0.0, placement.region.y - row))
        return result

    def _scroll_silently(self, row: float) -> None:
        for attribute in (Widget.scroll_y, Widget.scroll_target_y):
            self.set_reactive(cast("Reactive[float]", attribute), row)
        self.vertical_scrollbar.position = row

    async def action_first(self) -> None:
        await self._mount_from(0)
        self.scroll_home(animate=False, immediate=True)
        self._fill()

    async def _mount_from(self, first: int) -> None:
        """Mount a page of messages from one on, unless that is mounted already."""
        async with self._mounting:
            if not self._first <= first < self._end:
                with self.app.batch_update():
                    await self._unmount(self._views)
                    self._first = first
                    await self._mount_until(min(len(self._turns), first + PAGE))
                await self._mark_outside()

    async def reveal(self, turn: Turn) -> MessageView:
        """Mount a turn that is shown, if need be, and return its view."""
        place = self._turns.index(turn)
        if self.view_of(turn) is None:
            await self._mount_from(max(0, place - 1))
        return self._views[place - self._first]

    def scroll_to_row(self, view: MessageView, start: int) -> None:
        """Bring the row that a place of a message's text stands in into view."""
        self.anchor(False)
        row = view.virtual_region.y + view.row_of(start)
        if not 0 <= row - self.scroll_y < self.size.height:
            self.scroll_to(y=row - self.size.height // 3, animate=False, immediate=True)
        self._fill()

    async def action_last(self) -> None:
        await self.show_end()

    # Selection

    def on_focus(self, event: events.Focus) -> None:
        event.stop()
        self.action_select(-1)

    def action_select(self, step: int) -> None:
        """Select what can be selected above (-1) or below (1) what is selected."""
        selectable = [widget for widget in self.screen.focus_chain if self in widget.ancestors]
        focused = self.screen.focused
        last = len(selectable) - 1
        place = selectable.index(focused) + step if focused in selectable else last
        if 0 <= place < len(selectable):
            selectable[place].focus()
            return
        if step > 0:
            self.post_message(Wanted("focus_prompt"))


def _same(turns: Sequence[Turn], others: Sequence[Turn]) -> int:
    pairs = zip(turns, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
