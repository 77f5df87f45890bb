"""What the engine, the downloads and the prompt have to say, told on the chat screen."""

from dataclasses import replace
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from app.engine_status import Phase
from app.printable import one_line
from app.tui import wording
from app.tui.prompt.file_costs import FileCosts
from app.tui.prompt.prompt import PromptArea
from app.tui.status.figure_text import FigureText
from backends.base import SpecchatError

if TYPE_CHECKING:
    from app.tui.screens.chat_screen import ChatScreen


class News:
    """Tells everything once, and writes only what changed."""

    def __init__(self, screen: "ChatScreen") -> None:
        self._screen = screen
        self._file_costs = FileCosts(screen.engine.count)
        self._costs_shown = ""
        self._status_shown = ""
        self._told_fault = ""
        self._told_error: SpecchatError | None = None
        self._told_note = ""

    def show(self) -> None:
        """What came since the last time."""
        self._show_status()
        self._show_file_costs()
        self._show_downloads()

    def tell(self, note: str) -> None:
        """Say once what a chat template could not do, and why a chat is not saved."""
        screen = self._screen
        if note and note != self._told_note:
            self._told_note = note
            screen.notify(note, severity="warning", timeout=10)
        fault = screen.dialogue.fault
        if fault and fault != self._told_fault:
            screen.notify(f"This chat is not saved: {fault}", severity="error", timeout=10)
        self._told_fault = fault
        history = screen.dialogue.history
        if history is not None and (news := history.news()):
            screen.notify(news, severity="warning", timeout=30)

    def greet(self) -> None:
        """Say once what one can do, and that the bundled model is small."""
        screen = self._screen
        loaded = screen.engine.status.loaded
        if loaded is None or screen.dialogue.turns or screen.query("#hint"):
            return
        sends = "Enter" if screen.preferences.enter_sends else "Ctrl+J"
        lines = [f"Ask something and press {sends}. / lists commands, F1 every key."]
        if loaded.name == "demo":
            lines.append(
                "This is the bundled model: small and quick, often wrong. "
                "Ctrl+L lists better ones, and tells which fit this machine."
            )
        lines += loaded.notes
        screen.transcript.mount(Static(Content("\n".join(lines)), id="hint"))

    def _show_status(self) -> None:
        screen = self._screen
        status = screen.engine.status
        if status.error is not None:
            text = str(status.error).replace("\n", " ")
        elif status.phase is Phase.LOADING:
            text = f"{status.text}…"
        else:
            text = status.text or (wording.what_runs(status.loaded) if status.loaded else "")
        if status.error is not None and status.error is not self._told_error:
            self._told_error = status.error
            screen.notify(str(status.error), severity="error", timeout=10)
            if status.phase is not Phase.FAILED:
                screen.engine.status = replace(status, error=None)
        if text != self._status_shown:
            self._status_shown = text
            shown = screen.query_one("#what", Static)
            shown.set_class(status.error is not None, "-fault")
            shown.update(Content(one_line(text)), layout=status.error is not None)
            if status.phase is Phase.READY:
                self.greet()

    def _show_downloads(self) -> None:
        screen = self._screen
        for ended in screen.downloads.take_ended():
            if ended.error is None:
                ended.then()
            elif ended.error:
                screen.notify(ended.error, severity="error", timeout=10)
            else:
                screen.notify(f"The download of {ended.name} was stopped; what came is kept.")
        text = "\n".join(
            one_line(f"{name}: {line}") for name, line in screen.downloads.lines.items()
        )
        shown = screen.query_one("#downloads", FigureText)
        shown.display = bool(text)
        if text:
            shown.write(text)

    def _show_file_costs(self) -> None:
        screen = self._screen
        area = screen.query_one(PromptArea)
        loaded = screen.engine.status.loaded
        costs = self._file_costs.line(area.text, loaded.context_size if loaded else None)
        if costs != self._costs_shown:
            self._costs_shown = costs
            area.border_subtitle = Content(costs)
