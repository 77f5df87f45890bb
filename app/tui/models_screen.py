"""The models at hand: search, see what fits, pick one."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.installed import Installed
from app.tui import wording

_MARKS = {"fits": "$text-success", "tight": "$text-warning", "too big": "$text-error"}


class ModelsScreen(ModalScreen[str | None]):
    """Returns the name of the model to load, None for none."""

    BINDINGS: ClassVar = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("down", "into_list", show=False),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    ModelsScreen { align: center middle; }
    ModelsScreen Vertical {
        width: 90%; max-width: 90; height: 80%; border: round $primary; background: $surface;
    }
    ModelsScreen OptionList { height: 1fr; border: none; }
    ModelsScreen #hint { color: $text-muted; padding: 0 1; height: auto; }
    """

    def __init__(self, models: Sequence[Installed], running: str, folder: str) -> None:
        super().__init__()
        self._models = models
        self._loaded = running
        self._folder = folder

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Input(placeholder="Search, or type the path of a .gguf file", id="query")
            yield OptionList()
            hint = f"Enter loads · Esc leaves · put .gguf files into {self._folder}"
            yield Static(Content(hint), id="hint")

    def on_mount(self) -> None:
        self._show("")
        self.query_one(Input).focus()

    @on(Input.Changed)
    def _search(self, event: Input.Changed) -> None:
        self._show(event.value)

    def _show(self, query: str) -> None:
        words = query.lower().split()
        found = [one for one in self._models if all(word in one.name.lower() for word in words)]
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([Option(self._line(one), id=one.name) for one in found])
        if found:
            listed.highlighted = 0

    def _line(self, model: Installed) -> Content:
        mark = "●" if model.name == self._loaded else " "
        head = f"{mark} {wording.size(model.size):>8}  "
        return Content.assemble(head, (f"{model.fit:8}", _MARKS[model.fit]), f" {model.name}")

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        listed = self.query_one(OptionList)
        typed = event.value.strip()
        if listed.highlighted is not None:
            self.dismiss(listed.get_option_at_index(listed.highlighted).id)
        elif typed:
            self.dismiss(typed)

    def action_into_list(self) -> None:
        """From the search to the list."""
        self.query_one(OptionList).focus()
