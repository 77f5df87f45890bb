"""A model as one row of a list: its name first, and as many columns as there is room for."""

from collections.abc import Mapping
from dataclasses import dataclass

from textual.content import Content

from app.loading.expected_speed import about
from app.loading.model_list import ModelList, Offered, Speed
from app.loading.streaming.outlook import streaming_rate
from app.printable import one_line
from app.tui import wording
from app.tui.screens.dialog import is_narrow
from app.tui.screens.row_list import CURSOR, Row, columns, right
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

_SLOWER = (
    (0.4, "larger, far slower"),
    (0.6, "larger, half as fast"),
    (0.9, "larger, slower"),
)
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


def lead_of(is_focused: bool, mark: str, mark_style: str) -> tuple[Content, int]:
    """The first three columns of a row: its mark, and the cursor in its place or before it."""
    cursor = CURSOR if is_focused else " "
    before, here = (cursor, mark) if mark else (" ", cursor)
    return Content.assemble(before, (here, mark_style), " "), 3


@dataclass(frozen=True, slots=True)
class ModelColumns:
    """Rows of one list. downloads: progress by name of the model."""

    models: ModelList
    downloads: Mapping[str, str]

    def row(self, model: Offered) -> Row:
        """The row of a model."""
        return Row(model.name, lambda width, is_focused: self._line(model, width, is_focused))

    def _line(self, model: Offered, width: int, is_focused: bool) -> Content:
        mark, style = self._mark(model)
        lead = lead_of(is_focused, mark, style)
        name = Content.styled(one_line(model.name), "bold" if is_focused else "")
        size = short_size(model.size_bytes) if model.size_bytes else "?"
        if is_narrow(width + 2):
            return self._narrow_line(model, width, lead, name, size)
        speed = speed_words(model.speed, streams=model.fit is Fit.STREAMS)
        state = Content.styled(self._state(model), self._state_style(model))
        longest = max((len(each.name) for each in self.models.models), default=0)
        room = min(max(_NAME, longest), _NAME + max(0, width - _WIDE))
        left = width - 3 - room - _SIZE - 3 - _SPEED
        return columns(
            lead,
            (name, room),
            right(size, _SIZE),
            (Content(f"   {speed}"), _SPEED + 3),
            (state, left),
        )

    def _narrow_line(
        self, model: Offered, width: int, lead: tuple[Content, int], name: Content, size: str
    ) -> Content:
        room = width - 3 - _SIZE - _SHORT_SPEED - 2
        if room >= 10:
            style = self._state_style(model)
            return columns(
                lead, (name, room), right(size, _SIZE), right(self._short(model), 12, style)
            )
        room = width - 3 - _SIZE - 1
        if room >= 10:
            return columns(lead, (name, room), right(size, _SIZE))
        return columns(lead, (name, width - 3))

    def _short(self, model: Offered) -> str:
        """The one thing to know of a model where there is little room."""
        if model.name in self.downloads:
            return self.downloads[model.name].partition(",")[0]
        if model.fault:
            return model.fault.partition(":")[0].partition(" ")[0]
        streams = model.fit is Fit.STREAMS
        return speed_words(model.speed, is_narrow=True, streams=streams)

    def _mark(self, model: Offered) -> tuple[str, str]:
        if model.fault:
            return "✕", "$error"
        if model.name == self.models.loaded:
            return "●", "$primary"
        if model.fit in (Fit.TIGHT, Fit.TOO_BIG, Fit.STREAMS):
            return "▲", "$warning"
        return "", ""

    def _state_style(self, model: Offered) -> str:
        if model.fault:
            return "$error"
        return "" if model.name in self.downloads else "$secondary"

    def _state(self, model: Offered) -> str:
        """What to know of a model before using it, in a few words."""
        known = {DEMO: "tiny, often wrong", self.models.loaded: "in use", **self.downloads}
        if model.fault or model.name in known:
            return model.fault or known[model.name]
        if model.trained:
            return "a drafter"
        if model.fit is not None and model.fit in _FITS:
            return _FITS[model.fit]
        return "asks for a login" if model.is_gated else self._compared(model)

    def _compared(self, model: Offered) -> str:
        """A model against the one in use."""
        own = next((each for each in self.models.models if each.name == self.models.loaded), None)
        if model.speed is None:
            return ""
        if model.speed.rate >= _FAST:
            return "fast"
        is_larger = own is not None and (model.size_bytes or 0) > (own.size_bytes or 0)
        if own is None or own.speed is None or own.name == DEMO or not is_larger:
            return ""
        share = model.speed.rate / own.speed.rate
        return next((words for least, words in _SLOWER if share < least), "")
