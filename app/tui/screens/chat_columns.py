"""One row of the list of chats, and the preview of a chat."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rich.cells import cell_len
from textual.content import Content

from app.history.chat import Chat, Preview
from app.printable import one_line
from app.relative_time import relative_time
from app.tui.screens.row_list import CURSOR, columns, right

_NARROW = 60
"""Columns below which a row is a title and a time."""

_FRAME = 4
"""Columns of a row beside its cells: the cursor, and a blank before, after and at the end."""

_TITLE, _STATE, _LEAST_MODEL, _LEAST_TIME = 38, 14, 12, 9
_TITLE_GAP = 2
_FENCE = "```"


def is_narrow(width: int) -> bool:
    """Whether rows of this many columns show no more than a title and a time."""
    return width < _NARROW


@dataclass(frozen=True, slots=True)
class ChatColumns:
    """Columns that the texts of all listed chats need; state is 0 where no chat has one."""

    title: int
    state: int
    model: int
    time: int

    @classmethod
    def of(cls, chats: Sequence[Chat]) -> Self:
        """What these chats need."""
        return cls(
            max((cell_len(_title(chat)) for chat in chats), default=0),
            _STATE if any(map(_state, chats)) else 0,
            max((cell_len(one_line(chat.model)) for chat in chats), default=0),
            max(_LEAST_TIME, *(len(relative_time(chat.updated)) for chat in chats), 0),
        )

    def title_in(self, room: int) -> int:
        """Columns of the titles: long ones get what states, models and times leave free."""
        usual = min(_TITLE, room - _STATE - _LEAST_MODEL - self.time - 1)
        free = room - self.state - min(self.model, _LEAST_MODEL) - self.time - 1
        return max(usual, min(self.title + _TITLE_GAP, free))


def chat_row(chat: Chat, width: int, is_focused: bool, needed: ChatColumns) -> Content:
    """A row: title, versions, model and time; on a narrow screen, title and time."""
    room = width - _FRAME
    time_width = needed.time
    marker = (Content(f" {CURSOR} " if is_focused else "   "), 3)
    title = Content.styled(_title(chat), "bold" if is_focused else "")
    time = right(relative_time(chat.updated), time_width, "$secondary")
    gap = (Content(""), 1)
    if is_narrow(width):
        return columns(marker, (title, room - time_width - 1), gap, time, gap)
    title_width = needed.title_in(room)
    state_width = _STATE if title_width <= _TITLE else needed.state
    model_width = room - title_width - state_width - time_width - 1
    state = (Content.styled(_state(chat), "$secondary"), state_width)
    model = (Content.styled(one_line(chat.model), "$secondary"), model_width)
    blanks = (Content(""), _TITLE_GAP)
    return columns(marker, (title, title_width - _TITLE_GAP), blanks, state, model, gap, time, gap)


def _title(chat: Chat) -> str:
    return one_line(chat.title) or "untitled"


def _state(chat: Chat) -> str:
    if chat.is_interrupted:
        return "interrupted"
    return f"{chat.versions} versions" if chat.versions > 1 else ""


def preview_lines(shown: Preview, width: int) -> Content:
    """The last question and its answer, one line each; on a narrow screen the question alone."""
    rule, gap = (Content.styled(" ▌ ", "$primary"), 3), (Content("   "), 3)
    question = columns(rule, (Content(_first_line(shown.question)), width - 4))
    if is_narrow(width) or not shown.answer:
        return question
    answer = (Content.styled(_first_line(shown.answer), "$secondary"), width - 6)
    return Content("\n").join([question, columns(gap, answer)])


def _first_line(text: str) -> str:
    """The first line of a text, but for a fence of code, and whether more follow."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_FENCE)]
    return one_line(lines[0]) + (" …" if len(lines) > 1 else "") if lines else ""
