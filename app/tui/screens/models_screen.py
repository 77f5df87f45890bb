"""The model picker: models on this machine, and those to download."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import on, work
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from app.loading.drafters_offered import drafters_in_sentences
from app.loading.model_list import ModelList, Offered
from app.printable import one_line
from app.tui.prompt.text_fields import PrintableInput
from app.tui.screens.dialog import Dialog, is_narrow
from app.tui.screens.model_columns import ModelColumns
from app.tui.screens.row_list import CURSOR, Row, RowList, text_row
from app.tui.store import Store
from app.tui.typed_app import typed_app
from models.byte_sizes import short_size
from models.metadata.memory_bill import Fit

_TOO_BIG = "\0too big"
"""Id of the line that stands for the models that are too big; no model has this name."""

_LEAVE = "Esc back"
_SEARCHES = ("Search, or type a file or hub repository", "Search")
_STREAMS = "Larger than memory: a part of its weights is read from disk for each token."
_ESTIMATE = "“about” is estimated from the size and this machine's memory speed."


class ModelsScreen(ModalScreen[str | None]):
    """Returns the name of the model to use or download, None if none was chosen.

    list_models: called on a thread, as it reads the files' headers. stop: stops the download of a
    model, and tells whether there was one.
    """

    app = typed_app
    BINDINGS: ClassVar = [
        Binding("escape", "dismiss(None)", "Back"),
        Binding("up", "move('cursor_up')", show=False, priority=True),
        Binding("down", "move('cursor_down')", show=False, priority=True),
        Binding("pageup", "move('page_up')", show=False, priority=True),
        Binding("pagedown", "move('page_down')", show=False, priority=True),
        Binding("delete", "stop", "Stop", priority=True),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    ModelsScreen { align: center middle; }
    ModelsScreen Input, ModelsScreen Input:focus { padding: 0 1; background-tint: $surface 0%; }
    ModelsScreen #gap { height: 1; }
    ModelsScreen #details {
        height: auto; min-height: 2; max-height: 5; padding: 0 1; color: $secondary;
    }
    """

    def __init__(
        self, store: Store, list_models: Callable[[], ModelList], stop: Callable[[str], bool]
    ) -> None:
        super().__init__()
        self._store = store
        self._list_models = list_models
        self._stop = stop
        self._found: ModelList | None = None
        self._is_expanded = False
        self._dialog = Dialog("Models", _LEAVE)
        self._rows = RowList()
        self._details = Static(id="details")

    def compose(self) -> ComposeResult:
        with self._dialog:
            yield PrintableInput(compact=True, select_on_focus=False, id="query")
            yield Static(id="gap")
            yield self._rows
            yield self._details

    def on_mount(self) -> None:
        self._rows.can_focus = False
        self.query_one(Input).focus()
        self.watch(self._store, "downloads", self._show, init=False)
        self._look()

    def on_resize(self) -> None:
        is_short = self.app.size.width < 50
        self.query_one(Input).placeholder = _SEARCHES[is_short]
        self._show()

    @work(thread=True)
    def _look(self) -> None:
        found = self._list_models()
        self.app.call_from_thread(self._take, found)

    def _take(self, found: ModelList) -> None:
        self._found = found
        free = f"{short_size(found.free_bytes)} of memory free"
        self._dialog.show_title("Models", *[] if is_narrow(self.app.size.width) else [free])
        self._show()
        self._rows.highlight(found.loaded)

    @on(Input.Changed)
    def _search(self) -> None:
        self._show()

    def _show(self) -> None:
        if self._found is None:
            return
        self._rows.show(self._all_rows(self._found))
        self._explain()

    def _all_rows(self, found: ModelList) -> list[Row]:
        words = self.query_one(Input).value.lower().split()
        models = [
            model for model in found.models if all(word in model.name.lower() for word in words)
        ]
        here = [model for model in models if model.is_installed]
        others = [model for model in models if not model.is_installed]
        shows_all = self._is_expanded or bool(words)
        big = [model for model in others if model.fit is Fit.TOO_BIG]
        listed = [model for model in others if shows_all or model not in big]
        rows = self._group("" if is_narrow(self.app.size.width) else "On this machine", here)
        if rows and others:
            rows.append(text_row(""))
        rows += self._group("To download", listed)
        if big and not shows_all:
            rows.append(Row(_TOO_BIG, lambda width, focused: _too_big(len(big), width, focused)))
        return rows or [text_row("   no model of that name; Enter tries it as it is")]

    def _group(self, title: str, models: Sequence[Offered]) -> list[Row]:
        found = self._found
        assert found is not None
        columns = ModelColumns(found, self._store.downloads)
        heading = [text_row(f" {title}", "$secondary")] if title and models else []
        return [*heading, *(columns.row(model) for model in models)]

    @on(OptionList.OptionHighlighted)
    def _explain(self) -> None:
        """Show the details of the highlighted row."""
        model = self._focused
        lines: list[str] = []
        if model is not None and self._found is not None:
            is_small = is_narrow(self.app.size.width)
            lines.append(_details(model, self._found.free_bytes, is_narrow=is_small))
            if model.fit is Fit.STREAMS:
                lines.append(_STREAMS)
            elif not is_small and model.drafters:
                lines.append(drafters_in_sentences(model.drafters))
            elif not is_small and model.speed and not model.speed.is_measured:
                lines.append(_ESTIMATE)
        self._details.update(Content("\n".join(lines)))
        self._dialog.show_keys(" · ".join(filter(None, [self._key_of(model), _LEAVE])))

    def _key_of(self, model: Offered | None) -> str:
        """The key that does something to the highlighted row, and what; empty if none does."""
        if model is None:
            if self._rows.focused_id == _TOO_BIG:
                return "Enter shows them"
            is_typed = bool(self.query_one(Input).value.strip())
            return "Enter tries it" if is_typed and self._found else ""
        if model.name in self._store.downloads:
            return "Del stop"
        is_loaded = self._found is not None and model.name == self._found.loaded
        is_useless = is_loaded or not model.is_usable
        return "" if is_useless else "Enter use" if model.is_installed else "Enter download"

    @property
    def _focused(self) -> Offered | None:
        name, models = self._rows.focused_id, self._found.models if self._found else ()
        return next((model for model in models if model.name == name), None)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        typed = event.value.strip()
        chosen = self._rows.focused_id
        if chosen is None and typed:
            self.dismiss(typed)
        elif chosen is not None:
            self._choose(chosen)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        if event.option_id is not None:
            self._choose(event.option_id)

    def _choose(self, chosen: str) -> None:
        if chosen == _TOO_BIG:
            place = self._rows.highlighted
            self._is_expanded = True
            self._show()
            self._rows.highlighted = place
        elif chosen not in self._store.downloads:
            model = self._focused
            if model is None or model.is_usable:
                is_in_use = self._found is not None and chosen == self._found.loaded
                self.dismiss(None if is_in_use else chosen)

    def action_move(self, how: str) -> None:
        """Move the highlight, while the search keeps the focus."""
        getattr(self._rows, f"action_{how}")()

    def action_stop(self) -> None:
        """Stop the download of the highlighted model; else the key edits the search."""
        name = self._rows.focused_id
        if name is None or not self._stop(name):
            raise SkipAction


def _too_big(count: int, width: int, is_focused: bool) -> Content:
    text = f"{count} more are too big"
    text = text if is_narrow(width + 2) else f"{text} for this machine"
    return Content.styled(f" {CURSOR if is_focused else ' '} {text}", "" if is_focused else "dim")


def _details(model: Offered, free: int, *, is_narrow: bool) -> str:
    """Memory, licence and faults of a model, in a sentence or two."""
    name = one_line(model.name)
    if model.fault:
        return f"{name}: the file is {model.fault}. Download or copy it again."
    if model.trained:
        return f"{name} is no model: it drafts for one ({model.trained})."
    licence = f" Licence: {one_line(model.licence)}." if model.licence else ""
    gate = " Its authors ask for a login first." if model.is_gated else ""
    if model.memory_bytes is None:
        return f"{name}: its memory is not known.{licence}{gate}"
    needed = f"{name}: {short_size(model.memory_bytes)} of memory"
    if is_narrow:
        return f"{needed} needed, {short_size(free).split()[0]} free.{licence}{gate}"
    return f"{needed} with {model.n_ctx:,} tokens of context.{licence}{gate}"
