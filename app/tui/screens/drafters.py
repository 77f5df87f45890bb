"""The drafters for the loaded model: what each is, what was accepted, and what it costs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from textual import on, work
from textual.binding import Binding
from textual.content import Content
from textual.widgets import OptionList

from app.drafting.choose import drafter_words
from app.drafting.choose.drafter_info import DrafterInfo, Kind, Ranking
from app.drafting.drafter_spec import LOOKUP, NGRAM, RETRIEVAL
from app.engine.engine import Engine
from app.printable import one_line
from app.tui.lists import ListScreen, Row, columns, lead_of, more_row, text_row
from app.tui.look import kind_of
from app.tui.panel.figures import bar
from app.tui.store import Store
from app.tui.widgets import MUTED, is_narrow
from app.tui.wording import SEPARATOR, rate
from backends.base import SpecchatError

_NAME, _LONGEST_NAME = 13, 21
_NATURE, _SHARE = 31, 23
"""Cells of what a drafter is, at most, and of what became of its drafts."""

_BAR, _SHORT_BAR = 10, 8


@dataclass(frozen=True, slots=True)
class DrafterColumns:
    """Rows of one list.

    requested: names of the drafters in use. longest: cells of the longest name. is_measuring:
    whether what is not known yet is being measured.
    """

    requested: frozenset[str]
    longest: int
    is_measuring: bool

    def choice(self, name: str, words: str, short: str = "") -> Row:
        def render(width: int, is_focused: bool) -> Content:
            text = short if is_narrow(width + 2) else words
            named = self._named(name, width, is_focused)
            return columns(named, (Content(text), width - named[1]))

        return Row(name, render)

    def heading(self, title: str, share: str = "", short: str = "") -> Row:
        def render(width: int, _is_focused: bool) -> Content:
            at = 5 + _NAME if is_narrow(width + 2) else self._share_at(width)
            second = short if is_narrow(width + 2) else share
            text = f"     {title}"
            return Content.styled(f"{text:<{at}}{second}"[:width] if second else text, MUTED)

        return Row(None, render)

    def row(self, pair: DrafterInfo) -> Row:
        return Row(pair.name, lambda width, focused: self._line(pair, width, focused))

    def _line(self, pair: DrafterInfo, width: int, is_focused: bool) -> Content:
        name = pair.name
        named = self._named(name, width, is_focused, "■", kind_of(name.partition("(")[0]).hue)
        if is_narrow(width + 2):
            words = drafter_words.short_verdict(pair, is_measuring=self.is_measuring)
            share = Content(words) if words else _share(pair, _SHORT_BAR)
            return columns(named, (share, width - named[1]))
        nature = Content.styled(drafter_words.nature(pair), MUTED)
        words = drafter_words.verdict(pair, is_measuring=self.is_measuring)
        share = Content(words) if words else _share(pair, _BAR)
        at = self._share_at(width)
        room = at - named[1]
        nature = Content.assemble(nature.truncate(room - 1, ellipsis=True), " ")
        return columns(named, (nature, room), (share, width - at))

    def _share_at(self, width: int) -> int:
        return min(5 + self._name_room(width) + _NATURE, width - _SHARE)

    def _name_room(self, width: int) -> int:
        return _NAME if is_narrow(width + 2) else min(max(_NAME, self.longest + 1), _LONGEST_NAME)

    def _named(
        self, name: str, width: int, is_focused: bool, square: str = " ", style: str = ""
    ) -> tuple[Content, int]:
        """What a row begins with: whether it is in use, its hue, and the name."""
        lead, taken = lead_of(is_focused, "●" if name in self.requested else "", "$text-primary")
        room = self._name_room(width)
        text = Content.styled(one_line(name), "bold" if is_focused else "")
        text = text.truncate(room - 1, ellipsis=True)
        return Content.assemble(lead, (square, style), " ", text), taken + 2 + room


def _share(pair: DrafterInfo, cells: int) -> Content:
    share = pair.acceptance or 0.0
    return Content.assemble(bar(share, cells, kind_of(pair.name).hue), f"  {100 * share:.0f} %")


_UNUSABLE = "\0unusable"
_COMBINED = "\0combined"
"""Ids of the lines that stand for more drafters until Enter expands them; no drafter has these."""

_FREE = (LOOKUP, NGRAM, RETRIEVAL)
_FREE_PAIRS = tuple(
    DrafterInfo(name, kind, is_compatible=True, why="")
    for name, kind in zip(_FREE, (Kind.LOOKUP, Kind.NGRAM, Kind.RETRIEVAL), strict=True)
)
"""The drafters of every model, shown before one is loaded."""

_LEAVE = "Esc back"


class DraftersScreen(ListScreen[tuple[str, str] | None]):
    """Returns a command and its drafters, None if none were chosen.

    The command is "draft", to use them from now on, or "race", to race them first.

    is_measured: whether what is missing may be measured now, which the next answer waits for.
    """

    BINDINGS: ClassVar = [Binding("f5", "race", "Race")]

    def __init__(self, store: Store, engine: Engine, *, is_measured: bool = True) -> None:
        super().__init__("Drafters", _LEAVE)
        self._store = store
        self._engine = engine
        self._is_measuring = is_measured
        self._ranking: Ranking | None = None
        self._fault = ""
        self._expanded: set[str] = set()

    def on_mount(self) -> None:
        self._rows.focus()
        self._show()
        self._rows.highlight(LOOKUP)
        self._look()
        if self._is_measuring:
            self._measure()

    def on_resize(self) -> None:
        self._show()

    @work
    async def _look(self) -> None:
        ranking, fault = None, ""
        try:
            ranking = await asyncio.to_thread(self._engine.drafters)
        except SpecchatError as error:
            fault = str(error)
        if self._ranking is None:  # else everything was measured before
            self._ranking, self._fault = ranking, fault
            self._show()

    @work(group="measuring")
    async def _measure(self) -> None:
        """Wait for what is measured; where the list is left first, Textual cancels both."""
        try:
            ranking = await asyncio.wrap_future(self._engine.rank())
            self._ranking = _in_order(ranking, self._ranking)
        except SpecchatError as error:
            self._fault = str(error)
        self._is_measuring = False
        self._show()

    @property
    def _pairs(self) -> tuple[DrafterInfo, ...]:
        return self._ranking.drafters if self._ranking else _FREE_PAIRS

    def _show(self) -> None:
        self._rows.show(self._all_rows())
        ranking, is_small = self._ranking, is_narrow(self.app.size.width)
        seconds = ranking.plain_seconds if ranking else None
        title = f"Drafters for {ranking.target}" if ranking and not is_small else "Drafters"
        plain = [f"plain {rate(1 / seconds)}"] if seconds and not is_small else []
        self._dialog.show_title(title, *(f"● in use{SEPARATOR}{one}" for one in plain), "● in use")
        self._explain()

    def _all_rows(self) -> list[Row]:
        usable = [pair for pair in self._pairs if pair.is_compatible is not False]
        others = [pair for pair in self._pairs if pair.is_compatible is False]
        by_name = {pair.name: pair for pair in usable}
        costly = [pair for pair in usable if pair.name not in _FREE]
        combined = [pair for pair in costly if "(" in pair.name]
        simple = [pair for pair in costly if pair not in combined]
        draft = self._store.draft
        named = frozenset({draft, *(name.strip() for name in draft.split(","))})
        is_wide = _COMBINED in self._expanded
        longest = max((len(name) for name in by_name if is_wide or "(" not in name), default=0)
        shown = DrafterColumns(named, longest, self._is_measuring)
        rows = [
            shown.choice("auto", "the free ones, others if they pay off"),
            shown.choice("off", "plain", "plain"),
        ]
        if not named & {"auto", "off", *by_name}:
            rows.append(shown.choice(draft, "as asked for", "as asked for"))
        rows += [
            text_row(""),
            shown.heading("Free", "accepted in all chats", "accepted, all chats"),
        ]
        rows += [shown.row(by_name[name]) for name in _FREE if name in by_name]
        if costly:
            rows += [text_row(""), shown.heading("Cost time and memory")]
            rows += [shown.row(pair) for pair in simple]
        if combined and not is_wide:
            words = f"{len(combined)} combinations of these"
            rows.append(more_row(_COMBINED, "   ", words))
        else:
            rows += [shown.row(pair) for pair in combined]
        if others and _UNUSABLE not in self._expanded:
            words = f"{len(others)} more cannot draft"
            rows.append(more_row(_UNUSABLE, "   ", f"{words} for this model", words))
        elif others:
            why = {pair.name: one_line(f"{pair.name}  {pair.why}") for pair in others}
            rows += [more_row(name, "   ", text) for name, text in why.items()]
        return rows

    @on(OptionList.OptionHighlighted)
    def _explain(self) -> None:
        """Say once from when drafting pays off, and what the highlighted row is."""
        is_small = is_narrow(self.app.size.width)
        self._details.update(Content("\n".join([self._pays_off(is_small), self._about(is_small)])))
        self._dialog.show_keys(" · ".join([*self._keys, _LEAVE]))

    @property
    def _keys(self) -> Sequence[str]:
        name = self._rows.focused_id
        if name in (_UNUSABLE, _COMBINED):
            return ("Enter shows them",)
        if name is None or not self._can_draft(name):
            return ()
        return ("Enter use",) if name == "off" else ("Enter use", "F5 race")

    def _pays_off(self, is_small: bool) -> str:
        if self._fault:
            return one_line(self._fault)
        free = next((pair for pair in self._pairs if pair.name == LOOKUP), None)
        is_rough = self._ranking is not None and self._ranking.spread > 0.0
        least = free.break_even if free else None
        return drafter_words.break_even_words(least, is_rough=is_rough, is_narrow=is_small)

    def _about(self, is_small: bool) -> str:
        name = self._rows.focused_id
        if name in (None, _UNUSABLE):
            return ""
        if name == _COMBINED:
            return "Several of these together: Enter shows them."
        pair = next((pair for pair in self._pairs if pair.name == name), None)
        if pair is not None and pair.is_compatible is False:
            return one_line(f"{name} cannot draft: {pair.why}")
        return one_line(drafter_words.explanation(name, pair, is_narrow=is_small))

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        if event.option_id in (_UNUSABLE, _COMBINED):
            place = self._rows.highlighted
            self._expanded.add(event.option_id)
            self._show()
            self._rows.highlighted = place
        elif event.option_id is not None and self._can_draft(event.option_id):
            self.dismiss(("draft", event.option_id))

    def action_race(self) -> None:
        name = self._rows.focused_id
        if name is not None and name not in (_UNUSABLE, _COMBINED, "off") and self._can_draft(name):
            self.dismiss(("race", name))

    def _can_draft(self, name: str) -> bool:
        return all(pair.is_compatible is not False for pair in self._pairs if pair.name == name)


def _in_order(ranking: Ranking, before: Ranking | None) -> Ranking:
    if before is None:
        return ranking
    place = {pair.name: index for index, pair in enumerate(before.drafters)}
    pairs = sorted(ranking.drafters, key=lambda pair: place.get(pair.name, len(place)))
    return replace(ranking, drafters=tuple(pairs))
