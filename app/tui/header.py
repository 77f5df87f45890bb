"""The top row: title, model, device, and how full the context is; and faults, shown once."""

import re
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from app.engine.status import Loaded, Phase, Status
from app.loading.streaming import StreamOfferError
from app.printable import one_line
from app.tui.chat.view import ChatView
from app.tui.keymap import sending_key
from app.tui.store import Store
from app.tui.widgets import clickable, is_narrow
from app.tui.wording import ellipsised, remedy_here, sets_context
from app.wording import percentage

_LEAST_TITLE = 12
"""Cells that the right side leaves to a title."""

_GAP = 2

_NEARLY_FULL = 0.8
"""Share of the context from which it is a warning: the next answer may leave out old turns."""

_CONTEXT = "context "

_SHARE = re.compile(r"\d+ ?%")


class Header(Static):
    """One row; parts on the right drop out as it narrows."""

    DEFAULT_CSS: ClassVar[str] = """
    Header { height: 1; padding: 0 1; text-wrap: nowrap; }
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.auto_links = False
        self._store = store
        self._full = ""
        """How full the context is, such as "context 9 %"; empty before the first answer."""

    def on_mount(self) -> None:
        for attribute in ("title", "status", "waiting_program", "live", "not_saved"):
            self.watch(self._store, attribute, self._show, init=False)

    def on_resize(self) -> None:
        self._show()

    def _show(self) -> None:
        self._full = self._share_of_context()
        width = self.content_size.width
        title = one_line(self._store.title) or "New chat"
        room = width - _GAP - min(cell_len(title), _LEAST_TITLE)
        right = next((text for text in self._versions(width) if cell_len(text) <= room), "")
        brief = self._full.replace(_CONTEXT, "")
        is_brief = self._full not in right and right.endswith(brief)
        longer = right.removesuffix(brief) + self._full
        if is_brief and cell_len(title) + _GAP + cell_len(longer) <= width:
            right = longer
        left = ellipsised(title, width - (cell_len(right) + _GAP if right else 0))
        gap = " " * (width - cell_len(left) - cell_len(right))
        parts = [
            (part, "$text-warning" if part.startswith("▲") else "$text-muted")
            for part in re.split("(▲(?:(?! · ).)*)", right)
        ]
        named = Content.styled(left, "bold").stylize(clickable("screen.perform('chats')"))
        facts = Content.assemble(*parts).stylize(clickable("screen.perform('model')"))
        self.update(Content.assemble(named, gap, facts), layout=False)

    def _versions(self, width: int) -> list[str]:
        model, device, full = self._model, self._device, self._full
        warning = f"▲ not saved: {one_line(why)}" if (why := self._store.not_saved) else ""
        brief = "▲ not saved" if warning else ""
        here = self._program, model
        long = [(warning, *here, device, full), (brief, *here, device), (brief, *here)]
        short = [(brief, model, full.replace(_CONTEXT, "")), (brief, model), (brief,)]
        versions = short if is_narrow(width) else [*long, *short]
        return [" · ".join(filter(None, parts)) for parts in versions]

    @property
    def _model(self) -> str:
        status = self._store.status
        if status.phase is Phase.LOADING:
            return _loading(status.text)
        if status.loaded is None:
            return "no model"
        name = one_line(status.loaded.name)
        return "demo model" if name == "demo" else name

    @property
    def _program(self) -> str:
        program = self._store.status.program
        waiting = self._store.waiting_program
        if program:
            return f"answering {one_line(program)}"
        return f"{one_line(waiting)} waits" if waiting else ""

    @property
    def _device(self) -> str:
        status = self._store.status
        if status.loaded is None or status.phase is Phase.LOADING:
            return ""
        info = status.loaded.info
        device = info.device.partition(":")[0]
        return f"{device}, streams" if info.streamed_bytes_per_token else device

    def _share_of_context(self) -> str:
        """How full the context is; while the next prompt is read, as full as before."""
        metrics, loaded = self._store.live.metrics, self._store.status.loaded
        if metrics is not None and metrics.context_used and loaded is not None:
            used, size = metrics.context_used, loaded.context_size
            return f"{'▲ ' * (used >= _NEARLY_FULL * size)}{_CONTEXT}{percentage(used, size)} %"
        return self._full if self._store.is_answering else ""


def _loading(progress: str) -> str:
    share = _SHARE.search(progress)
    return f"loading {share[0]}" if share else "loading…"


_MOST_NOTICES, _LONGEST_NOTICE = 4, 140
"""Settings that cannot be used are told above the prompt, and must leave room for the rest."""

_UNSAVED = "It is saved as soon as that is mended; quitting before loses it."
_STREAM = "on an empty prompt reads it from disk, from now on · Ctrl+L chooses another"
_AGAIN = "tries again · Ctrl+L chooses another"


class FaultReports:
    """What was reported already. notices: settings that cannot be used, to be reported first."""

    def __init__(self, view: ChatView, notices: Sequence[str]) -> None:
        self._view = view
        self._notices = list(notices)
        self._status = Status(Phase.LOADING)
        """The status whose error was reported last."""
        self._unsaved = ""
        self._loaded: Loaded | None = None
        self._news = ""

    async def report(self, status: Status) -> None:
        """Show what is new, and remove what is over."""
        self._tell_notes(status.loaded)
        await self._report_error(status)
        await self._report_unsaved()
        history = self._view.dialogue.history
        if history is not None and (news := history.news()):
            self._notices.append(news)
        if status.news and status.news != self._news:
            self._news = status.news
            self._notices.append(status.news)
        if self._notices:
            notices, self._notices = self._notices, []
            await self._view.show_notice(_in_lines(notices))

    def _tell_notes(self, loaded: Loaded | None) -> None:
        """Tell once what a server does in another way than was asked for."""
        before, self._loaded = self._loaded, loaded or self._loaded
        if loaded is not None and loaded.is_remote and loaded is not before:
            for note in loaded.notes:
                self._view.app.notify(one_line(note), markup=False)

    async def _report_error(self, status: Status) -> None:
        error, before = status.error, self._status.error
        self._status = status
        if error is before:
            return
        if error is None:
            await self._view.clear_fault()
            return
        key = sending_key(self._view.store.preferences)
        if isinstance(error, StreamOfferError):
            await self._view.show_notice(
                f"{error.summary}.", f"{error.outlook.question}\n{key} {_STREAM}"
            )
            return
        is_usable = status.loaded is not None or sets_context(error)
        remedy = remedy_here(error) if is_usable else f"{key} {_AGAIN}"
        await self._view.show_fault(error.summary, remedy)

    async def _report_unsaved(self) -> None:
        fault = self._view.unsaved
        if fault == self._unsaved:
            return
        self._unsaved = fault
        if fault:
            await self._view.show_fault(f"The chat cannot be saved: {fault}", _UNSAVED)
        else:
            await self._view.clear_fault()


def _in_lines(notices: Sequence[str]) -> str:
    """Notices, a line each; long ones and many are cut."""
    lines = [
        one if len(one) <= _LONGEST_NOTICE else f"{one[: _LONGEST_NOTICE - 1]}…" for one in notices
    ]
    more = len(lines) - _MOST_NOTICES
    return "\n".join([*lines[:_MOST_NOTICES], *([f"and {more} more"] if more > 0 else [])])
