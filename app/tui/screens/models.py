"""The model picker: models on this machine, and those to download."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from textual import on, work
from textual.actions import SkipAction
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Input, OptionList

from app.loading.model_list import (
    STAR,
    ListedModel,
    ModelList,
    Order,
    Speed,
    about,
    arranged,
    drafters_in_sentences,
    starred,
)
from app.loading.streaming import streaming_rate
from app.printable import one_line
from app.tui import wording
from app.tui.lists import Row, SearchScreen, columns, lead_of, more_row, right, text_row
from app.tui.store import Store
from app.tui.widgets import is_narrow
from models.byte_sizes import short_size
from models.metadata.memory_bill import Fit
from models.stores.available_models import DEMO

_NAME, _SIZE, _SPEED = 18, 7, 17
_WIDE = 78
"""Columns from which further ones go to long names."""

_SHORT_SPEED = 12
_FAST = 20.0
"""Tokens a second that are far more than people read."""


_FITS = {Fit.TIGHT: "tight fit", Fit.TOO_BIG: "too big", Fit.STREAMS: "streams"}
"""Words for models that do not simply fit."""

_SLOWER = ((0.4, "larger, far slower"), (0.6, "larger, half as fast"), (0.9, "larger, slower"))
"""Words for the speed of a larger model, by the share of the present one's that it stays below."""


def speed_words(speed: Speed | None, *, is_narrow: bool = False, streams: bool = False) -> str:
    """A speed, such as "10 tok/s", or "about 10 tok/s" where it is estimated; empty if unknown.

    streams: of a model that is read from disk, which may take seconds for a token.
    """
    if speed is None:
        return ""
    if speed.is_measured:
        return wording.rate(speed.rate)
    if streams:
        return streaming_rate(speed.rate, is_narrow=is_narrow)
    return about(speed.rate, is_narrow=is_narrow)


_TOO_BIG = "\0too big"
"""Id of the line that stands for the models that are too big; no model has this name."""

_LEAVE = "Esc back"
_SEARCHES = ("Search, or type a file or hub repository", "Search")
_STREAMS = "Larger than memory: a part of its weights is read from disk for each token."
_ESTIMATE = "“about” is estimated from the size and this machine's memory speed."


class ModelsScreen(SearchScreen[str | None]):
    """Returns the name of the model to use or download, None if none was chosen.

    list_models: called on a thread, as it reads the files' headers. stop: stops the download of a
    model, and tells whether there was one. star: keeps the names that have a star.
    """

    BINDINGS: ClassVar = [
        Binding("delete", "stop", "Stop", priority=True),
        Binding("f2", "star", "Star", priority=True),
        Binding("f3", "sort", "Sort", priority=True),
    ]

    def __init__(
        self,
        store: Store,
        list_models: Callable[[], ModelList],
        stop: Callable[[str], bool],
        star: Callable[[str], object],
    ) -> None:
        super().__init__("Models", _LEAVE)
        self._store = store
        self._list_models = list_models
        self._stop, self._star = stop, star
        self._found = ModelList((), 0, Path())
        """Empty until they are listed."""
        self._is_expanded = False

    def on_mount(self) -> None:
        for attribute in ("downloads", "preferences"):
            self.watch(self._store, attribute, self._show, init=False)
        self._look()

    def on_resize(self) -> None:
        is_short = self.app.size.width < 50
        self._query.placeholder = _SEARCHES[is_short]
        self._show()

    @work
    async def _look(self) -> None:
        self._found = await asyncio.to_thread(self._list_models)
        self._show()
        self._rows.highlight(self._found.loaded)

    @on(Input.Changed)
    def _show(self) -> None:
        if not self._found.models:
            return
        free = f"{short_size(self._found.free_bytes)} of memory free"
        facts = [] if is_narrow(self.app.size.width) else [free]
        if (order := self._store.model_order) != Order.CATALOGUE:
            by = f"by {order.replace('-', ' ')}"
            facts = [*(f"{by} · {fact}" for fact in facts), by]
        self._dialog.show_title("Models", *facts)
        self._rows.show(self._all_rows(self._found))
        self._explain()

    def _all_rows(self, found: ModelList) -> list[Row]:
        words = self._query.value.lower().split()
        stars = starred(self._store.preferences.stars)
        listed = arranged(found.models, Order(self._store.model_order), stars, found.used)
        models = [model for model in listed if all(word in model.name.lower() for word in words)]
        here = [model for model in models if model.is_installed]
        others = [model for model in models if not model.is_installed]
        shows_all = self._is_expanded or bool(words)
        big = [one for one in others if one.fit is Fit.TOO_BIG and not one.is_starred]
        listed = [model for model in others if shows_all or model not in big]
        rows = self._group("" if is_narrow(self.app.size.width) else "On this machine", here)
        if rows and others:
            rows.append(text_row(""))
        rows += self._group("To download", listed)
        if big and not shows_all:
            words = f"{len(big)} more are too big"
            rows.append(more_row(_TOO_BIG, " ", f"{words} for this machine", words))
        return rows or [text_row("   no model of that name; Enter tries it as it is")]

    def _group(self, title: str, models: Sequence[ListedModel]) -> list[Row]:
        heading = [text_row(f" {title}", "$text-muted")] if title and models else []
        return [*heading, *map(self._row, models)]

    def _row(self, model: ListedModel) -> Row:
        return Row(model.name, lambda width, is_focused: self._line(model, width, is_focused))

    def _line(self, model: ListedModel, width: int, is_focused: bool) -> Content:
        lead = lead_of(is_focused, *self._mark(model))
        shown = f"{STAR} " * model.is_starred + one_line(model.name)
        name = Content.styled(shown, "bold" if is_focused else "")
        size = short_size(model.size_bytes) if model.size_bytes else "?"
        calm = "" if model.name in self._store.downloads else "$text-muted"
        style = "$text-error" if model.fault else calm
        if is_narrow(width + 2):
            room = width - 3 - _SIZE - _SHORT_SPEED - 2
            state = right(self._short(model), _SHORT_SPEED, style)
            return columns(lead, (name, room), right(size, _SIZE), state)
        speed = speed_words(model.speed, streams=model.fit is Fit.STREAMS)
        state = Content.styled(self._state(model), style)
        longest = max((len(each.name) for each in self._found.models), default=0)
        longest += 2 * bool(self._store.preferences.stars)
        room = min(max(_NAME, longest), _NAME + max(0, width - _WIDE))
        left = width - 3 - room - _SIZE - 3 - _SPEED
        return columns(
            lead,
            (name, room),
            right(size, _SIZE),
            (Content(f"   {speed}"), _SPEED + 3),
            (state, left),
        )

    def _short(self, model: ListedModel) -> str:
        if model.name in self._store.downloads:
            return self._store.downloads[model.name].partition(",")[0]
        if model.fault:
            return model.fault.partition(":")[0].partition(" ")[0]
        streams = model.fit is Fit.STREAMS
        return speed_words(model.speed, is_narrow=True, streams=streams)

    def _mark(self, model: ListedModel) -> tuple[str, str]:
        if model.fault:
            return "✕", "$text-error"
        if model.name == self._found.loaded:
            return "●", "$text-primary"
        if model.fit in (Fit.TIGHT, Fit.TOO_BIG, Fit.STREAMS):
            return "▲", "$text-warning"
        return "", ""

    def _state(self, model: ListedModel) -> str:
        known = {DEMO: "tiny, often wrong", self._found.loaded: "in use", **self._store.downloads}
        if model.fault or model.name in known:
            return model.fault or known[model.name]
        if model.trained:
            return "a drafter"
        if model.fit is not None and model.fit in _FITS:
            return _FITS[model.fit]
        return "asks for a login" if model.is_gated else self._compared(model)

    def _compared(self, model: ListedModel) -> str:
        own = next((each for each in self._found.models if each.name == self._found.loaded), None)
        if model.speed is None:
            return ""
        if model.speed.rate >= _FAST:
            return "fast"
        is_larger = own is not None and (model.size_bytes or 0) > (own.size_bytes or 0)
        if own is None or own.speed is None or own.name == DEMO or not is_larger:
            return ""
        share = model.speed.rate / own.speed.rate
        return next((words for least, words in _SLOWER if share < least), "")

    @on(OptionList.OptionHighlighted)
    def _explain(self) -> None:
        model = self._focused
        lines: list[str] = []
        if model is not None:
            is_small = is_narrow(self.app.size.width)
            lines.append(_details(model, self._found.free_bytes, is_narrow=is_small))
            if model.fit is Fit.STREAMS:
                lines.append(_STREAMS)
            elif not is_small and model.drafters:
                lines.append(drafters_in_sentences(model.drafters))
            elif not is_small and model.speed and not model.speed.is_measured:
                lines.append(_ESTIMATE)
        self._details.update(Content("\n".join(lines)))
        keys = " · ".join(filter(None, [self._key_of(model), _LEAVE]))
        more = ["F2 star"] * (model is not None) + ["F3 sort"] * bool(self._rows.focused_id)
        self._dialog.show_keys(" · ".join([*more, keys]), keys)

    def _key_of(self, model: ListedModel | None) -> str:
        """The key that does something to the highlighted row, and what; empty if none does."""
        if model is None:
            if self._rows.focused_id == _TOO_BIG:
                return "Enter shows them"
            is_typed = bool(self._query.value.strip())
            return "Enter tries it" if is_typed and self._found.models else ""
        if model.name in self._store.downloads:
            return "Del stop"
        is_loaded = model.name == self._found.loaded
        is_useless = is_loaded or not model.is_usable
        return "" if is_useless else "Enter use" if model.is_installed else "Enter download"

    @property
    def _focused(self) -> ListedModel | None:
        name = self._rows.focused_id
        return next((model for model in self._found.models if model.name == name), None)

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
                is_in_use = chosen == self._found.loaded
                self.dismiss(None if is_in_use else chosen)

    def action_star(self) -> None:
        """Give the highlighted model a star, or take it away."""
        if (model := self._focused) is not None:
            stars = starred(self._store.preferences.stars)
            self._star(", ".join(sorted(stars ^ {model.name})))

    def action_sort(self) -> None:
        orders = [str(one) for one in Order]
        place = orders.index(self._store.model_order) + 1
        self._store.model_order = orders[place % len(orders)]
        self._show()

    def action_stop(self) -> None:
        """Stop the download of the highlighted model; else the key edits the search."""
        name = self._rows.focused_id
        if name is None or not self._stop(name):
            raise SkipAction


def _details(model: ListedModel, free: int, *, is_narrow: bool) -> str:
    name = one_line(model.name)
    if model.fault:
        return f"{name}: the file is {model.fault}. Download or copy it again."
    if model.trained:
        return f"{name} is no model: it drafts for one ({model.trained})."
    licence = f" Licence: {one_line(model.licence)}." if model.licence else ""
    if model.good_at:
        licence = f" Good at {', '.join(model.good_at)}.{licence}"
    gate = " Its authors ask for a login first." if model.is_gated else ""
    if model.memory_bytes is None:
        return f"{name}: its memory is not known.{licence}{gate}"
    needed = f"{name}: {short_size(model.memory_bytes)} of memory"
    if is_narrow:
        return f"{needed} needed, {short_size(free).split()[0]} free.{licence}{gate}"
    return f"{needed} with {model.n_ctx:,} tokens of context.{licence}{gate}"
