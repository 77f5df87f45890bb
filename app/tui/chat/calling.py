"""The tools of a chat: servers that are started, and calls that are asked about, run and shown."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.widget import Widget

from app.dialogue.dialogue import Dialogue
from app.dialogue.tree import ASSISTANT, Changes, Turn, called
from app.engine.engine import Engine
from app.settings.answering import ALLOWED, Answering
from app.tools.mcp_servers import Servers
from app.tools.toolbox import MOST_ROUNDS, Toolbox, is_allowed, result_of
from app.tui.chat.lines import WARNING, Card
from app.tui.chat.shown import ShownChat
from app.tui.store import Store
from app.wording import CONTINUES
from backends.chat.message import Tool

if TYPE_CHECKING:
    from concurrent.futures import Future

    from backends.base import ToolError
    from decoding.constraint.grammar import Grammar

_STARTED = "started, and has no result"
"""How a call ended of which nothing else is known."""


class CallingChat(ShownChat):
    """A chat whose answers may call tools.

    defaults: settings of chats that have none of their own.
    """

    def __init__(
        self,
        engine: Engine,
        dialogue: Dialogue,
        defaults: Answering,
        store: Store,
        changes: Changes,
        welcome: Callable[[], Widget],
    ) -> None:
        super().__init__(engine, dialogue, store, welcome)
        paths, is_offline = engine.paths, engine.options.offline
        self.toolbox = Toolbox(Servers(paths.servers, is_offline=is_offline), self._roots)
        self._told_faults: list[ToolError] = []
        self.defaults = defaults
        self.grammar: Grammar | None = None
        """What the next answers must match, None if they may be anything."""
        self._changes = changes
        self._changing = asyncio.Lock()
        """Held while turns are added or shown, so that two actions never mix."""

    @property
    def answering(self) -> Answering:
        return self.defaults.changed(self.dialogue.own)

    def _ask(self, turn: Turn) -> None:
        """Ask for an answer, which its turn grows by."""
        raise NotImplementedError

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the next answer may call."""
        return self.toolbox.offered(self.answering.tools) if self.grammar is None else ()

    @property
    def allowed(self) -> str:
        """What the user allowed in this chat, as is_allowed has it."""
        return str(self.dialogue.own.get(ALLOWED, ""))

    async def _next_call(self) -> None:
        """Run the next call, unless the user is asked about it; after the last, go on answering."""
        waiting = self.dialogue.open_calls
        if waiting and is_allowed(called(waiting[0])[0], self.allowed):
            self._call(waiting[0])
        elif not waiting and self.dialogue.rounds() >= MOST_ROUNDS:
            what = f"{MOST_ROUNDS} answers in a row have called tools"
            await self._show_card(Card(what, CONTINUES, mark=WARNING))
        elif not waiting:
            self._ask(self.dialogue.add(ASSISTANT, ""))
        await self._show(follow=True)

    def _call(self, call: Turn) -> None:
        self.dialogue.close_call(call, "", _STARTED)
        self.calling = call, self.toolbox.call(*called(call), self.answering.tools)

    async def _follow_call(self, call: Turn, result: "Future[str]") -> None:
        if result.done():
            self.calling = None
            self.dialogue.close_call(call, *result_of(result))
            await (self._show() if result.cancelled() else self._next_call())

    async def decide(self, allowed: str | None, word: str = "") -> None:
        """Run the call that waits, or refuse it, and remember what else is allowed in this chat.

        allowed: a name as in is_allowed, "" for this call alone, None to refuse it. word: to the
        model, why.
        """
        async with self._changing:
            call = self.asked
            if call is None:
                return
            if allowed:
                self._remember_allowed(allowed)
            if allowed is not None:
                self._call(call)
                await self._show()
            else:
                told = f"The user refused this call. {word}".strip()
                self.dialogue.close_call(call, told, "refused")
                await self._next_call()

    def _remember_allowed(self, allowed: str) -> None:
        dialogue, before = self.dialogue, self.allowed

        def step(value: str) -> None:
            others = {name: one for name, one in dialogue.own.items() if name != ALLOWED}
            dialogue.set_own({**others, **({ALLOWED: value} if value else {})})
            self.show_settings()

        after = f"{before} {allowed}".strip()
        step(after)
        self._changes.note(f"allowed {allowed}", step, before, after)

    def _roots(self) -> Sequence[Path]:
        """The folder or pattern that is attached to the chat, if one is."""
        return [Path(self.dialogue.folder)] if self.dialogue.folder else []

    async def _tell_faults(self) -> None:
        """Start the servers that the chat has turned on, and tell once which cannot be."""
        faults = self.toolbox.faults(self.answering.tools)
        over = {one.summary for one in self._told_faults if one not in faults}
        if any(card.text in over for card in self._cards.query(Card)):
            await self.clear_fault()
        for fault in faults:
            if fault not in self._told_faults:
                await self.show_notice(fault.summary, "The chat goes on. /tools NAME tries again.")
        self._told_faults = faults

    async def clear_fault(self) -> None:
        await self._remove_cards()
        await self._show()
