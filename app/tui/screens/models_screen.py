"""The list of models: those installed, and those of the catalogue to download."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.loading.model_list import Offered
from app.printable import one_line
from app.tui import wording
from app.tui.prompt.text_fields import PrintableInput
from models.metadata.memory_bill import Fit

_MARKS = {Fit.FITS: "$text-success", Fit.TIGHT: "$text-warning", Fit.TOO_BIG: "$text-error"}
_UPDATE_SECONDS = 0.5


class ModelsScreen(ModalScreen[str | None]):
    """Returns the name of the model to load or download, None if none was chosen.

    progress: the progress of downloads, by name. bandwidth: bytes per second, None if it was not
    measured.
    """

    BINDINGS: ClassVar = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("down", "into_list", show=False),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    ModelsScreen { align: center middle; }
    ModelsScreen Vertical {
        width: 96%; max-width: 110; height: 80%; border: round $primary; background: $surface;
    }
    ModelsScreen OptionList {
        height: 1fr; border: none; text-wrap: nowrap; text-overflow: ellipsis;
    }
    ModelsScreen #hint { color: $text-muted; padding: 0 1; height: auto; }
    """

    def __init__(
        self,
        models: Sequence[Offered],
        loaded: str,
        folder: str,
        progress: Callable[[], Mapping[str, str]] = dict,
        bandwidth: float | None = None,
    ) -> None:
        super().__init__()
        self._models = models
        self._loaded = loaded
        self._folder = folder
        self._progress = progress
        self._bandwidth = bandwidth
        self._matches: list[Offered] = []

    def compose(self) -> ComposeResult:
        with Vertical():
            yield PrintableInput(placeholder="Search, or type a file or hub repository", id="query")
            yield OptionList()
            yield Static(Content(self._hint()), id="hint")

    def _hint(self) -> str:
        limit = (
            "≤ tok/s: memory bandwidth divided by the bytes read per token. "
            if self._bandwidth
            else ""
        )
        return (
            f"● loaded, + installed, ↓ available for download. {limit}Enter chooses; Enter on a "
            f"download stops it. Put your own .gguf files into {self._folder}"
        )

    def on_mount(self) -> None:
        self._show("")
        self.query_one(Input).focus()
        self.set_interval(_UPDATE_SECONDS, self._show_progress)

    @on(Input.Changed)
    def _search(self, event: Input.Changed) -> None:
        self._show(event.value)

    def _show(self, query: str) -> None:
        words = query.lower().split()
        self._matches = [
            model for model in self._models if all(word in model.name.lower() for word in words)
        ]
        option_list = self.query_one(OptionList)
        option_list.clear_options()
        progress = self._progress()
        option_list.add_options(
            [Option(self._line(model, progress), id=model.name) for model in self._matches]
        )
        if self._matches:
            option_list.highlighted = 0

    def _show_progress(self) -> None:
        """Update the progress of downloads without moving the highlight."""
        progress = self._progress()
        option_list = self.query_one(OptionList)
        for index, model in enumerate(self._matches):
            if model.name in progress:
                option_list.replace_option_prompt_at_index(index, self._line(model, progress))

    def _line(self, model: Offered, progress: Mapping[str, str]) -> Content:
        mark = "●" if model.name == self._loaded else "+" if model.is_installed else "↓"
        size = wording.size(model.size_bytes) if model.size_bytes else "?"
        fit = model.fit or "?"
        style = _MARKS[model.fit] if model.fit else ""
        about = progress.get(model.name, model.about)
        return Content.assemble(
            f"{mark} {size:>8} ",
            (f"{fit:7}", style),
            f" {self._limit(model):>13} {one_line(model.name):20} ",
            (one_line(about), "$text-muted"),
        )

    def _limit(self, model: Offered) -> str:
        """The highest rate of plain decoding that the bandwidth allows."""
        if not self._bandwidth or not model.read_bytes:
            return ""
        return f"≤ {self._bandwidth / model.read_bytes:.3g} tok/s"

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        option_list = self.query_one(OptionList)
        typed = event.value.strip()
        if option_list.highlighted is not None:
            self.dismiss(option_list.get_option_at_index(option_list.highlighted).id)
        elif typed:
            self.dismiss(typed)

    def action_into_list(self) -> None:
        """Move the focus from the search to the list."""
        self.query_one(OptionList).focus()
