"""The prompt: a text area with suggestions above it and token counts of named files below."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import TextArea

from app.tui.prompt.completion import Completion
from app.tui.prompt.file_token_counts import CountTokens, FileTokenCounts
from app.tui.prompt.prompt_area import PromptArea

_COUNT_SECONDS = 1 / 12
"""Between two updates of the token counts."""


class Prompt(Vertical):
    """Where the user writes questions and slash commands."""

    DEFAULT_CSS: ClassVar[str] = """
    Prompt { height: auto; }
    PromptArea { height: auto; max-height: 10; border: round $primary; padding: 0 1; }
    """

    def __init__(self, count_tokens: CountTokens) -> None:
        super().__init__()
        self.context_size: int | None = None
        """In tokens, to warn of files that do not fit; None while no model is loaded."""
        self._completion = Completion()
        self.area = PromptArea(self._completion)
        self._token_counts = FileTokenCounts(count_tokens)
        self._shown_counts = ""

    def compose(self) -> ComposeResult:
        yield self._completion
        yield self.area

    def on_mount(self) -> None:
        self.set_interval(_COUNT_SECONDS, self._show_token_counts)

    @on(TextArea.Changed)
    def _suggest(self) -> None:
        self.area.suggest()

    @on(Completion.Clicked)
    def _complete(self, event: Completion.Clicked) -> None:
        event.stop()
        self.area.complete(event.suggestion, run=True)

    def _show_token_counts(self) -> None:
        counts = self._token_counts.summary(self.area.text, self.context_size)
        if counts != self._shown_counts:
            self._shown_counts = counts
            self.area.border_subtitle = Content(counts)
