"""The top line: the model in use, what the engine is doing, or why it failed."""

from typing import ClassVar

from textual.content import Content
from textual.widgets import Static

from app.engine.engine_status import Phase, Status
from app.printable import one_line
from app.tui import wording


class StatusLine(Static):
    """One line of engine status; an error may take several."""

    DEFAULT_CSS: ClassVar[str] = """
    StatusLine { height: 1; background: $panel; padding: 0 1; }
    StatusLine.-fault { height: auto; max-height: 5; }
    """

    def __init__(self) -> None:
        super().__init__(id="what")
        self._shown = ""

    def show(self, status: Status) -> bool:
        """Show the status; returns whether the line changed."""
        text = _text(status)
        if text == self._shown:
            return False
        self._shown = text
        is_failed = _is_failed(status)
        self.set_class(is_failed, "-fault")
        self.update(Content(one_line(text)), layout=is_failed)
        return True


def _is_failed(status: Status) -> bool:
    return status.phase is Phase.FAILED and status.error is not None


def _text(status: Status) -> str:
    if _is_failed(status):
        return str(status.error).replace("\n", " ")
    if status.phase is Phase.LOADING:
        return f"{status.text}…"
    return status.text or (wording.what_runs(status.loaded) if status.loaded else "")
