"""What widgets share: the type of their app, cheap layout, timers, figures that fold, and keys."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from textual import getters
from textual.app import App
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.message_pump import MessagePump
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

from app.tui.wording import SEPARATOR

if TYPE_CHECKING:
    from textual.widget import Widget as _Widget
else:
    _Widget = object

typed_app = getters.app[App[Any]](lambda: App)
"""For the class attribute `app` of a widget or screen."""


class LaidOutOnce(_Widget):
    """A widget without scrollbars whose new size needs no second layout of the screen.

    Textual asks for one whenever the size of a widget's content changes, since scrollbars may
    come or go: a third of what painting a growing answer costs.
    """

    def _size_updated(
        self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True
    ) -> bool:
        del layout
        return super()._size_updated(size, virtual_size, container_size, layout=False)


def in_turn(widget: MessagePump, callback: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """For a timer: let a widget run a callback between two of its messages, once at a time.

    Textual runs what a timer calls in the timer's task, and cancels that task at the end. Where the
    callback is waiting for messages to be removed just then, their tasks are cancelled with it, and
    the app ends with an error. A widget's own task is not cancelled: closing waits for it.
    """
    is_waiting = False

    async def run() -> None:
        nonlocal is_waiting
        is_waiting = False
        await callback()

    def call() -> None:
        nonlocal is_waiting
        if not is_waiting:
            is_waiting = widget.call_later(run)

    return call


class Wanted(Message):
    """An action of the screen is wanted, such as "perform" with the argument "stop".

    It comes as a message, so that it is carried out after what was sent before it: a key that
    bubbles up on its own may overtake that.
    """

    def __init__(self, action: str, *arguments: object) -> None:
        super().__init__()
        self.action = action
        self.arguments = arguments


MUTED = "$text-muted"
_KEY = r"(?:Page Up|Page Down|Enter|Esc|Del|Tab|[↑↓←→]|F\d+|(?:Ctrl|Shift)\+\w+)"
_KEYS = re.compile(rf"(?:^ ?|· |  )({_KEY}(?: {_KEY})*)(?: [^·]*?(?= ·|  |$)|$)")
_OTHER_NAMES = {"esc": "escape", "del": "delete"}


def is_narrow(width: int) -> bool:
    """Whether so many columns of a terminal have room for short texts only."""
    return width < 60


def clickable(action: str) -> Style:
    """The style of text that does what a click on it, as by `action_` methods, is to do."""
    return Style.from_meta({"@click": action})


def keys_line(text: str) -> Content:
    """Keys, and muted what they do, such as "Enter use · Esc back"; a click presses a key."""
    line = Content.styled(text, MUTED)
    for found in _KEYS.finditer(text):
        line = line.stylize("$foreground", *found.span(1))
        if " " not in (key := found[1].lower()):
            press = clickable(f"app.press('{_OTHER_NAMES.get(key, key)}')")
            line = line.stylize(press, found.start(1), found.end())
    return line


class ByWidth(Visual):
    """Content that is made for the columns that there are."""

    def __init__(self, content: Callable[[int], Content]) -> None:
        self._content = content

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        return self._content(width).render_strips(width, height, style, options)

    def get_optimal_width(self, rules: Any, container_width: int) -> int:
        return self._content(container_width).get_optimal_width(rules, container_width)

    def get_height(self, rules: Any, width: int) -> int:
        return self._content(width).get_height(rules, width)


def folded(text: str) -> ByWidth:
    """Parts with " · " between them; none stands at the end of a row."""
    parts = [Content(part) for part in text.split(SEPARATOR)]
    return ByWidth(lambda width: Content("\n").join(_rows(parts, width)))


def _rows(parts: Sequence[Content], width: int) -> list[Content]:
    rows = [parts[0]]
    for part in parts[1:]:
        longer = Content.assemble(rows[-1], SEPARATOR, part)
        if longer.cell_length <= width:
            rows[-1] = longer
        else:
            rows.append(part)
    return rows
