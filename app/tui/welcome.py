"""What an empty chat shows: the last chats to go on with, or models for the first run."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalGroup
from textual.content import Content
from textual.widgets import OptionList, Static

from app.engine.engine import Engine
from app.engine.status import Loaded, Phase, Status
from app.history import Chat, History, HistoryError
from app.printable import one_line
from app.settings import file
from app.tui.downloads import models_here
from app.tui.lists import CURSOR, Row, RowList, columns, right, text_row
from app.tui.store import Store
from app.tui.widgets import Wanted, is_narrow
from app.wording import counted, relative_time
from backends.base import UsageError
from backends.engines.backend_selection import BUILD_CUDA, REMOTE
from models.byte_sizes import short_size

if TYPE_CHECKING:
    from app.loading.model_list import Suggestion


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
        memory = short_size(self.free_bytes)
        if self.is_offline or not self.suggestions:
            where = f"Put a .gguf file into {one_line(self.folder)}, then Ctrl+L uses it."
            advice = where if self.is_offline else MORE_MODELS
            return f"{_GREETING}\n\n{advice}"
        if is_narrow:
            start = "A tiny demo model is ready: quick, often wrong."
            return f"{start} Better ones for this machine ({memory} free):"
        here = f"this machine ({memory} of memory free, {counted(self.threads, 'thread')})"
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
    from app.loading.model_list import suggested
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
    from app.loading.model_list import about

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


_LAST_CHATS = 3
_RACE = "race"
_CHAT, _MODEL = "chat ", "model "
"""Beginnings of the ids of rows; a number or a name follows."""

_RENEWAL_SECONDS = 30.0
"""Between two looks at the chats: their times are in minutes."""

_TIME = 12
_WIDEST = 71
_HINT = "↓ then Enter opens · Ctrl+O shows all"
_SHORT_HINT = "↓ Enter opens · Ctrl+O shows all"

_HERE, _ELSEWHERE = "Everything runs on this machine.\n", "A server elsewhere answers.\n"
_DIVIDED = "Layers run on {}.\nWhat you write goes there unencrypted, unless through a tunnel.\n"


class WelcomeRows(RowList):
    BINDINGS: ClassVar = [Binding("escape", "leave", show=False)]
    DEFAULT_CSS: ClassVar[str] = """
    WelcomeRows, WelcomeRows:focus { height: auto; max-height: 100%; background: $background; }
    """

    marks_unfocused = False

    @property
    def help_text(self) -> str:
        return (
            "Enter downloads the model, opens the chat or shows what drafting does. Esc returns to "
            "the prompt."
        )

    def action_leave(self) -> None:
        self.post_message(Wanted("focus_prompt"))

    def action_cursor_up(self) -> None:
        ids = [row.id for row in self._rows if row.id is not None]
        if ids and self.focused_id == ids[0]:
            self.post_message(Wanted("focus_prompt"))
        else:
            super().action_cursor_up()


class Welcome(VerticalGroup):
    """The last chats, a demonstration, and without a model of one's own some to download."""

    DEFAULT_CSS: ClassVar[str] = """
    Welcome { padding: 1 0 0 3; }
    Welcome.-narrow { padding: 1 1 0 1; }
    Welcome #foot { color: $text-muted; margin: 1 0 0 0; }
    """

    def __init__(self, store: Store, engine: Engine, history: History | None) -> None:
        super().__init__()
        self._store = store
        self._engine = engine
        self._history = history
        self._chats = _last_chats(history)
        self._offer: Offer | None = None
        self._has_kept_demo = False
        self._looked_for: Loaded | None = None
        self._idle_card: str | None = None
        # Held, not looked up: a look at the models can end after the screen lost its widgets.
        self._text, self._rows, self._foot = Static(id="text"), WelcomeRows(), Static(id="foot")

    def compose(self) -> ComposeResult:
        yield from (self._text, self._rows, self._foot)

    def on_mount(self) -> None:
        self.watch(self._store, "status", self._follow)
        self.set_interval(_RENEWAL_SECONDS, self.renew)

    def on_resize(self) -> None:
        self.set_class(is_narrow(self.size.width), "-narrow")
        self._show()

    def renew(self) -> None:
        self._chats = _last_chats(self._history)
        self._show()

    def focus_rows(self) -> None:
        if self._rows.focused_id is not None:
            self._rows.focus()

    def keep_demo(self) -> bool:
        """Keep the demo model from now on, also at later starts; False if nothing is offered."""
        if self._offer is None:
            return False
        from models.stores.available_models import DEMO

        self._offer, self._has_kept_demo = None, True
        with contextlib.suppress(UsageError):  # then the next start offers models again
            file.save(self._engine.paths.settings, {"model": DEMO})
        self._show()
        return True

    def _follow(self, status: Status) -> None:
        loaded = status.loaded
        if loaded is not None and loaded.is_remote:  # no race, and no models to offer
            return
        if status.phase is Phase.READY and loaded is not None and loaded != self._looked_for:
            self._looked_for = loaded
            self._look(loaded)

    @work(exclusive=True)
    async def _look(self, loaded: Loaded) -> None:
        from backends.engines.engine_facts import idle_card

        self._offer = await asyncio.to_thread(offer_of, self._engine, loaded)
        self._idle_card = await asyncio.to_thread(idle_card)
        self._show()

    def _show(self) -> None:
        is_small = is_narrow(self.size.width)
        offer = self._offer
        self._text.update(self._above(offer, is_small))
        self._text.display = offer is not None or self._idle_card is not None or not is_small
        has_models = offer is not None and bool(offer.suggestions) and not offer.is_offline
        rows = self._model_rows(offer, is_small) if offer and has_models else []
        rows += self._chat_rows()
        if self._looked_for is not None:  # a race needs a model
            rows += [text_row(""), Row(_RACE, _race_line)] if rows else [Row(_RACE, _race_line)]
        self._rows.styles.width = "100%" if is_small else min(_WIDEST, max(self.size.width - 3, 1))
        self._rows.show(rows)
        self._foot.update(Content(self._keys(has_models, is_small)))

    def _above(self, offer: Offer | None, is_small: bool) -> Content:
        """What stands above the rows: the offer, and how to use a card that lies idle."""
        options = self._engine.options
        where = _ELSEWHERE if options.backend == REMOTE else _HERE
        if options.rpc:
            where = _DIVIDED.format(one_line(options.rpc))
        title = Content.assemble(("specchat\n", "bold"), (where, "$text-muted"))
        text = Content(f"{offer.text(is_narrow=is_small)}\n") if offer else title
        if self._idle_card is None:
            return text
        return text + Content(f"{one_line(self._idle_card)} lies idle. To use it: {BUILD_CUDA}\n")

    def _keys(self, has_models: bool, is_small: bool) -> str:
        """What the keys do; once the demo was kept, where other models are."""
        if has_models:
            return SHORT_FOOT if is_small else FOOT
        if self._has_kept_demo:
            return MORE_MODELS
        if not self._chats:
            return ""
        return _SHORT_HINT if is_small else _HINT

    def _model_rows(self, offer: Offer, is_small: bool) -> list[Row]:
        notes = {len(offer.suggestions) - 1: "fastest", 0: "recommended"}
        rows: list[Row] = []
        for place, one in enumerate(offer.suggestions):
            line = partial(suggestion_line, one, notes.get(place, ""), is_small)
            rows.append(Row(f"{_MODEL}{one.model.name}", line))
        return [*rows, text_row("")] if self._chats else rows

    def _chat_rows(self) -> list[Row]:
        if not self._chats:
            return []
        rows = [text_row("Continue a chat")]
        for chat in self._chats:
            title = one_line(chat.title) or "untitled"
            line = partial(_chat_line, title, relative_time(chat.updated))
            rows.append(Row(f"{_CHAT}{chat.number}", line))
        return rows

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        chosen = event.option_id or ""
        if chosen == _RACE:
            self.post_message(Wanted("perform", "race"))
        elif chosen.startswith(_CHAT):
            self.post_message(Wanted("perform", "chats", chosen.removeprefix(_CHAT)))
        elif chosen.removeprefix(_MODEL) not in self._store.downloads:
            self.post_message(Wanted("perform", "model", chosen.removeprefix(_MODEL)))
            self.post_message(Wanted("focus_prompt"))


def _chat_line(title: str, updated: str, width: int, is_focused: bool) -> Content:
    time = _TIME if width >= 2 * _TIME else 0
    return columns(
        (Content(f"{CURSOR if is_focused else ' '} "), 2),
        (Content.styled(title, "bold" if is_focused else ""), width - 2 - time),
        right(updated, time, "$text-muted"),
    )


def _race_line(width: int, is_focused: bool) -> Content:
    text = f"{CURSOR if is_focused else ' '} See what drafting does"
    return Content.styled(text, "bold" if is_focused else "").truncate(width, ellipsis=True)


def _last_chats(history: History | None) -> Sequence[Chat]:
    if history is None:
        return ()
    try:
        return history.chats(limit=_LAST_CHATS)
    except HistoryError:
        return ()  # the header says that chats cannot be read
