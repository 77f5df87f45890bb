"""One row of the list of chats, and the preview of a chat."""

from collections.abc import Sequence

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
_FENCE = "```"


def is_narrow(width: int) -> bool:
    """Whether rows of this many columns show no more than a title and a time."""
    return width < _NARROW


def time_columns(chats: Sequence[Chat]) -> int:
    """Columns that the times of all these chats need."""
    return max((len(relative_time(chat.updated)) for chat in chats), default=0)


def chat_row(chat: Chat, width: int, is_focused: bool, time_width: int) -> Content:
    """A row: title, versions, model and time; on a narrow screen, title and time."""
    room = width - _FRAME
    time_width = max(time_width, _LEAST_TIME)
    marker = (Content(f" {CURSOR} " if is_focused else "   "), 3)
    title = Content.styled(one_line(chat.title) or "untitled", "bold" if is_focused else "")
    time = right(relative_time(chat.updated), time_width, "$secondary")
    gap = (Content(""), 1)
    if is_narrow(width):
        return columns(marker, (title, room - time_width - 1), gap, time, gap)
    title_width = min(_TITLE, room - _STATE - _LEAST_MODEL - time_width - 1)
    model_width = room - title_width - _STATE - time_width - 1
    state = (Content.styled(_state(chat), "$secondary"), _STATE)
    model = (Content.styled(one_line(chat.model), "$secondary"), model_width)
    blanks = (Content(""), 2)
    return columns(marker, (title, title_width - 2), blanks, state, model, gap, time, gap)


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
