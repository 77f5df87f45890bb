"""What the first run offers: models to download in place of the demo."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.content import Content

from app.engine.engine import Engine
from app.engine.engine_status import Loaded
from app.printable import one_line
from app.tui.models_here import models_here
from app.tui.screens.row_list import CURSOR, columns, right
from models.byte_sizes import short_size

if TYPE_CHECKING:
    from app.loading.expected_speed import Suggestion


@dataclass(frozen=True, slots=True)
class Offer:
    """Models to download instead of the demo. free_bytes: of memory. folder: for models.

    is_offline: whether nothing can be downloaded.
    """

    suggestions: "tuple[Suggestion, ...]"
    free_bytes: int
    threads: int
    folder: str
    is_offline: bool

    def text(self, *, is_narrow: bool) -> str:
        """What stands above the models."""
        memory = short_size(self.free_bytes)
        if self.is_offline or not self.suggestions:
            where = f"Put a .gguf file into {one_line(self.folder)}, then Ctrl+L uses it."
            advice = where if self.is_offline else MORE_MODELS
            return f"{_GREETING}\n\n{advice}"
        if is_narrow:
            start = "A tiny demo model is ready: quick, often wrong."
            return f"{start} Better ones for this machine ({memory} free):"
        here = f"this machine ({memory} of memory free, {self.threads} threads)"
        return f"{_GREETING}\n\nFor real answers on {here}:"


_GREETING = "Welcome. A tiny demo model is ready: quick, often wrong."
MORE_MODELS = "Ctrl+L lists better models."
FOOT = (
    "↓ then Enter; you can chat while a model downloads. Esc keeps the demo.\n"
    "10 tok/s is about 7 words a second; people read about 4."
)
SHORT_FOOT = "↓ then Enter · Esc keeps the demo"


def offer_of(engine: Engine, loaded: Loaded) -> Offer | None:
    """The offer to someone without a model of their own, None to others; reads files.

    Whoever chose the demo by name has it as their own.
    """
    from app.loading.expected_speed import suggested  # with a model loaded, all of these are too
    from models.hub import HubSettings
    from models.stores.available_models import DEMO

    if loaded.name != DEMO or engine.options.model is not None:
        return None
    found = models_here(engine)
    if any(model.is_installed and model.name != DEMO and model.is_usable for model in found.models):
        return None
    return Offer(
        tuple(suggested(found.models, loaded.reach)),
        found.free_bytes,
        loaded.info.threads,
        str(found.folder),
        HubSettings.of_environment(engine.paths.downloads, engine.options.offline).offline,
    )


def suggestion_line(
    suggestion: "Suggestion", note: str, is_narrow: bool, width: int, is_focused: bool
) -> Content:
    """A suggested model: name, size, expected speed, and a note where there is room."""
    from app.loading.expected_speed import about

    model = suggestion.model
    lead = Content(f"{CURSOR if is_focused else ' '} ")
    size = short_size(model.size_bytes) if model.size_bytes else "?"
    speed = about(suggestion.rate, is_narrow=is_narrow)
    name = Content(one_line(model.name))
    if is_narrow:
        return columns((lead, 2), (name, 14), right(size, 7), right(speed, 12))
    return columns(
        (lead, 2), (name, 16), right(size, 7), (Content(f"   {speed}"), 20), (Content(note), width)
    ).truncate(width)
