"""A race: the last question answered twice, plain and drafted, side by side."""

from dataclasses import replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Footer, Static

from app.chat.conversation import Conversation
from app.engine.answer import Answer, Request
from app.engine.comparison import ENOUGH_TOKENS
from app.engine.engine import Engine
from app.printable import one_line
from app.tui import wording
from app.tui.conversation.growing_message import GrowingMessage
from decoding.sampling.distribution import SamplingSettings

_UPDATE_SECONDS = 1 / 12


class Lane(Vertical):
    """One of the two answers with its rate."""

    class Finished(Message):
        """The answer is done and its end is shown."""

    DEFAULT_CSS: ClassVar[str] = """
    Lane { width: 1fr; border: round $primary; }
    Lane > .rate { height: 1; text-style: bold; padding: 0 1; }
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self.border_title = Content(one_line(title))
        self.answer: Answer | None = None
        self.is_finished = False

    def compose(self) -> ComposeResult:
        yield Static("waiting", classes="rate")
        with VerticalScroll():
            yield GrowingMessage()

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).anchor()
        self.set_interval(_UPDATE_SECONDS, self._update)

    async def _update(self) -> None:
        """Show the text produced since the last update."""
        answer = self.answer
        if answer is None or self.is_finished:
            return
        is_done = answer.is_done  # before the text: nothing can come after it
        message = self.query_one(GrowingMessage)
        await message.grow(answer.take(), is_last=is_done)
        if answer.metrics is not None:
            rate = wording.rate(answer.metrics.decode_tokens_per_second)
            self.query_one(".rate", Static).update(Content(rate))
        if is_done:
            message.show_ending(ending_of(answer))
            self.is_finished = True
            self.post_message(self.Finished())


class RaceScreen(Screen[None]):
    """Runs plain decoding first, then drafting: at once they would slow each other down."""

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
        draft = engine.draft if engine.draft != "off" else "auto"
        self._engine = engine
        self._request = Request(conversation, settings, max_tokens, chat=chat)
        self._plain = Lane("plain decoding")
        self._drafted = Lane(f"drafted: {draft}")
        self._draft_of = {self._plain: "off", self._drafted: draft}

    def compose(self) -> ComposeResult:
        yield Static("The same question, plain and then drafted.", id="verdict")
        with Horizontal():
            yield self._plain
            yield self._drafted
        yield Footer()

    def on_mount(self) -> None:
        conversation = self._request.conversation
        for lane, draft in self._draft_of.items():
            copy = Conversation(conversation.system, list(conversation.turns))
            lane.answer = self._engine.ask(replace(self._request, conversation=copy, draft=draft))

    @on(Lane.Finished)
    def _judge(self) -> None:
        plain, drafted = self._plain.answer, self._drafted.answer
        if self._plain.is_finished and self._drafted.is_finished and plain and drafted:
            self.query_one("#verdict", Static).update(Content(verdict(plain, drafted)))

    def action_leave(self) -> None:
        """Stop both answers and close the screen."""
        for lane in self._draft_of:
            if lane.answer is not None:
                lane.answer.stop()
        self._engine.set_draft(self._engine.draft)  # the stopped answer had a drafter of its own
        self.dismiss()


def ending_of(answer: Answer) -> str:
    """The line below one of the answers, without a speedup: the verdict has the race's own."""
    metrics = replace(answer.metrics, speedup=None) if answer.metrics else None
    return wording.ending(metrics, answer.finish_reason, str(answer.error) if answer.error else "")


def verdict(plain: Answer, drafted: Answer) -> str:
    """The speedup of a race, and whether its answers are equal."""
    plain_rate, drafted_rate = _rate(plain), _rate(drafted)
    if plain_rate is None or drafted_rate is None or plain.error or drafted.error:
        return "No verdict: one of the two did not finish."
    speedup = f"{drafted_rate / plain_rate:.2f}× plain in this race"
    if min(len(plain.token_ids), len(drafted.token_ids)) < ENOUGH_TOKENS:
        speedup = "too short to tell the speed in this race"
    return f"{speedup} · {_comparison(plain, drafted)}"


def _rate(answer: Answer) -> float | None:
    return answer.metrics.decode_tokens_per_second if answer.metrics else None


def _comparison(plain: Answer, drafted: Answer) -> str:
    if drafted.metrics is not None and drafted.metrics.lossy:
        return f"{drafted.metrics.lossy}, so not the model's own distribution"
    if plain.token_ids == drafted.token_ids:
        return f"the same {len(plain.token_ids)} tokens"
    if plain.request.settings.temperature == 0.0:
        return "tokens differ: near-ties may round differently; run specchat verify"
    return "same distribution, different samples; specchat verify tests this"
