"""Shows each fault once, in the conversation: of the engine, the settings and the history."""

from collections.abc import Sequence

from app.engine.status import Phase, Status
from app.loading.streaming import StreamOfferError
from app.tui.chat.view import ChatView
from app.tui.keymap import sending_key
from app.tui.wording import remedy_here, sets_context

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

    async def report(self, status: Status) -> None:
        """Show what is new, and remove what is over."""
        await self._report_error(status)
        await self._report_unsaved()
        history = self._view.dialogue.history
        if history is not None and (news := history.news()):
            self._notices.append(news)
        if self._notices:
            notices, self._notices = self._notices, []
            await self._view.show_notice(_in_lines(notices))

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
        fault = self._view.dialogue.fault
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
