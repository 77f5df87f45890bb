"""The last question answered twice, plain and drafted, side by side."""

from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from app.answer import Answer, Request
from app.conversation import Conversation
from app.engine import Engine
from app.performance import ENOUGH_TOKENS
from app.printable import one_line
from app.tui import wording
from app.tui.message import GrowingMessage
from decoding.sampling import SamplingSettings

_TICK = 1 / 12


class Lane(Vertical):
    """One of the two answers with its rate."""

    DEFAULT_CSS: ClassVar[str] = """
    Lane { width: 1fr; border: round $primary; }
    Lane > .rate { height: 1; text-style: bold; padding: 0 1; }
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self.border_title = Content(one_line(title))
        self.answer: Answer | None = None
        self._is_shown = False

    def compose(self) -> ComposeResult:
        yield Static("waiting", classes="rate")
        with VerticalScroll():
            yield GrowingMessage()

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).anchor()

    async def drain(self) -> None:
        """Show what came; nothing once the end was shown."""
        answer = self.answer
        if answer is None or self._is_shown:
            return
        is_done = answer.is_done
        await self.query_one(GrowingMessage).grow(answer.take(), is_last=is_done)
        live = answer.live
        if live is not None:
            self.query_one(".rate", Static).update(Content(wording.rate(live.rate)))
        if is_done:
            self._is_shown = True
            self.query_one(GrowingMessage).show_ending(ending_of(answer))


class RaceScreen(Screen[None]):
    """Plain first, then drafted: side by side at once they would slow each other down."""

    BINDINGS: ClassVar = [Binding("escape", "leave", "Back to the chat")]
    DEFAULT_CSS: ClassVar[str] = """
    RaceScreen #verdict { height: auto; padding: 0 1; text-style: bold; }
    RaceScreen > Horizontal { height: 1fr; }
    """

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        settings: SamplingSettings,
        max_tokens: int,
        chat: int | None,
    ) -> None:
        super().__init__()
        self._engine = engine
        draft = engine.draft if engine.draft != "off" else "auto"
        plain = Request(conversation, settings, max_tokens, draft="off", chat=chat)
        self._requests = (plain, replace(plain, draft=draft))
        self._is_judged = False
        self._busy = False

    def compose(self) -> ComposeResult:
        yield Static("The same question, plain and then drafted.", id="verdict")
        with Horizontal():
            yield Lane("plain decoding")
            yield Lane(f"drafted: {self._requests[1].draft}")
        yield Footer()

    def on_mount(self) -> None:
        for lane, request in zip(self.query(Lane), self._requests, strict=True):
            conversation = request.conversation
            own = Conversation(conversation.system, list(conversation.turns))
            lane.answer = self._engine.ask(replace(request, conversation=own))
        self.set_interval(_TICK, self._tick)

    async def _tick(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            for lane in self.query(Lane):
                await lane.drain()
            answers = [lane.answer for lane in self.query(Lane)]
            if not self._is_judged and all(one and one.is_done for one in answers):
                self._is_judged = True
                plain, drafted = answers
                assert plain is not None
                assert drafted is not None
                self.query_one("#verdict", Static).update(Content(verdict(plain, drafted)))
        finally:
            self._busy = False

    def action_leave(self) -> None:
        """Stop both and go back."""
        for lane in self.query(Lane):
            if lane.answer is not None:
                lane.answer.stop()
        self._engine.set_draft(self._engine.draft)  # not what the half that was stopped had
        self.dismiss()


def ending_of(answer: Answer) -> str:
    """The line below one of the two; its speedup is the verdict's, over the other's own rate."""
    live = replace(answer.live, speedup=None) if answer.live else None
    return wording.ending(live, answer.finish_reason, str(answer.error) if answer.error else "")


def verdict(plain: Answer, drafted: Answer) -> str:
    """What one race tells of speed and of sameness."""
    rates = [one.live.rate if one.live else None for one in (plain, drafted)]
    if None in rates or plain.error or drafted.error:
        return "No verdict: one of the two did not finish."
    assert rates[0] is not None
    assert rates[1] is not None
    gained = f"{rates[1] / rates[0]:.2f}× plain in this race"
    if min(len(plain.token_ids), len(drafted.token_ids)) < ENOUGH_TOKENS:
        gained = "too short to tell the speed in this race"
    if drafted.live is not None and drafted.live.lossy:
        return f"{gained} · {drafted.live.lossy}, so not the model's own distribution"
    if plain.token_ids == drafted.token_ids:
        return f"{gained} · the same {len(plain.token_ids)} tokens"
    if plain.request.settings.temperature == 0.0:
        return f"{gained} · tokens differ: near-ties can round otherwise; ask specchat verify"
    return f"{gained} · same distribution, other draws; specchat verify tests that"
