"""A chat on the screen: its messages, calls of tools, errors, and what an empty chat shows."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakValueDictionary

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalGroup

from app.chat.sources import asks_about_all, in_words, read_of_all, sources_of, unknown_in_words
from app.dialogue.dialogue import Dialogue
from app.dialogue.libraries import Libraries, vectors_of
from app.dialogue.tree import ASSISTANT, USER, Changes, Turn, called, path_to, sources_for
from app.engine.answer import Answer, Stage
from app.engine.engine import Engine
from app.engine.metrics import SessionSpeedup
from app.engine.status import Phase
from app.printable import one_line
from app.settings.answering import ALLOWED, Answering
from app.tools.mcp_servers import Servers
from app.tools.toolbox import MOST_ROUNDS, Toolbox, is_allowed, result_of
from app.tui.chat.answer import AnswerView
from app.tui.chat.lines import WARNING, Card, InstructionsLine, QueueView
from app.tui.chat.messages import CallView, MessageView, QuestionView, text_width
from app.tui.chat.pending import PendingAnswer, Several, live_line, without_panel_figures
from app.tui.chat.transcript import Transcript
from app.tui.store import Store
from app.tui.welcome import Welcome
from app.tui.widgets import Wanted, typed_app
from app.tui.wording import CONTEXT_FULL, INTERRUPTED, joined, quoted_title
from app.wording import CONTINUES, without_continuation
from backends.base import PeerLostError
from backends.chat.message import Tool

if TYPE_CHECKING:
    from concurrent.futures import Future

    from app.tui.chat.reading import Reading
    from backends.base import ToolError
    from decoding.constraint.grammar import Grammar

_STARTED = "started, and has no result"
"""How a call ended of which nothing else is known."""

_AROUND = 10
"""Rows of the screen that an answer leaves to its question, the prompt and what else there is."""


class ShownChat(Vertical):
    """Transcript of a chat, whose answers may call tools, and what stands around it.

    defaults: settings of chats that have none of their own. give_back: puts a question that was not
    answered back into the prompt, and keeps it there before it leaves the chat; with the question
    that it is an edit of, None if it is new.
    """

    app = typed_app
    DEFAULT_CSS: ClassVar[str] = """
    ShownChat.-empty > Transcript { height: auto; max-height: 60%; }
    ShownChat.-empty > Welcome { height: 1fr; }
    """

    def __init__(
        self,
        engine: Engine,
        dialogue: Dialogue,
        defaults: Answering,
        store: Store,
        changes: Changes,
        give_back: Callable[[Turn, Turn | None], None],
    ) -> None:
        super().__init__()
        self.dialogue = dialogue
        self.defaults = defaults
        self.grammar: Grammar | None = None
        """What the next answers must match, None if they may be anything."""
        servers = Servers(engine.paths.servers, is_offline=engine.options.offline)
        self.toolbox = Toolbox(servers, self._roots)
        self._told_faults: list[ToolError] = []
        self._reported_note = ""
        self._changes, self._give_back = changes, give_back
        self._changing = asyncio.Lock()
        """Held while turns are added or shown, so that two actions never mix."""
        self.session = SessionSpeedup()
        """All answers since the start, to this chat and others."""
        self._unsaved: list[Dialogue] = []
        """Chats that are no longer shown and could not be saved yet."""
        self.growing: list[PendingAnswer] = []
        """The answers in progress, also in chats that were left; the first was asked first."""
        self.calling: tuple[Turn, Future[str]] | None = None
        """The call that runs, and its result."""
        self.several: Several | None = None
        """Answers of which one is to be picked."""
        self.reading: Reading | None = None
        """All that is attached, which is read in parts."""
        self.engine = engine
        self.store = store
        self._instructions = InstructionsLine()
        self._queue = QueueView()
        self._cards = VerticalGroup()
        self.transcript = Transcript(self._make_view, self._instructions, self._cards, self._queue)
        self._greeting: Welcome | None = None
        """The welcome, while the chat is empty."""
        self._answers: dict[Turn, Answer] = {}
        """Answers of this session to this chat, whose figures the panel can show."""
        self._questions = WeakValueDictionary[Turn, QuestionView]()
        """Those on the screen, and those that are about to be."""
        self.libraries = Libraries(
            engine.paths if dialogue.history is not None else None,
            vectors_of(engine.paths, lambda: not engine.is_answering),
        )
        self._searched: dict[Turn, int] = {}
        self._faulted: Turn | None = None
        """The answer that the error on the screen broke off."""
        self._awaits_model = False
        """Whether the queue is sent as soon as a model is loaded."""

    def compose(self) -> ComposeResult:
        yield self.transcript

    @property
    def own_growing(self) -> list[PendingAnswer]:
        """The answers in progress in this chat."""
        return [one for one in self.growing if one.dialogue is self.dialogue]

    @property
    def pending(self) -> PendingAnswer | None:
        """The answer in progress in this chat: of several, the one that is shown if one is."""
        own = self.own_growing
        shown = (one for one in own if one.turn in self.dialogue.turns)
        return next(shown, own[0] if own else None)

    def pending_of(self, turn: Turn) -> PendingAnswer | None:
        return next((one for one in self.growing if one.turn is turn), None)

    @property
    def answer(self) -> Answer | None:
        """The answer in progress, else the last one shown; None if this session did not make it."""
        if self.pending is not None:
            return self.pending.answer
        last = self.last_turn(ASSISTANT)
        return self._answers.get(last) if last is not None else None

    @property
    def is_idle(self) -> bool:
        """Whether no answer is in progress, nor the call of a tool."""
        return self.pending is None and self.calling is None

    @property
    def asked(self) -> Turn | None:
        """The call that waits for the user, if one does."""
        return next(iter(self.dialogue.open_calls), None) if self.is_idle else None

    @property
    def follows_answer(self) -> bool:
        """Whether the answer in progress is among the messages shown."""
        return self.pending is not None and self.pending.turn in self.dialogue.turns

    @property
    def waits_for(self) -> str:
        """The program that is answered before the question in progress; empty if none is."""
        is_queued = self.pending is not None and self.pending.answer.stage is Stage.QUEUED
        return one_line(self.engine.status.program) if is_queued else ""

    @property
    def has_model(self) -> bool:
        """Whether questions can be asked: each connects again to a machine that was lost."""
        status = self.engine.status
        is_lost = status.phase is Phase.FAILED and isinstance(status.error, PeerLostError)
        return status.loaded is not None or is_lost

    @property
    def selected(self) -> Turn | None:
        focused = self.screen.focused if self.is_attached else None
        return focused.turn if isinstance(focused, MessageView) else None

    def last_turn(self, role: str = "") -> Turn | None:
        turns = (turn for turn in reversed(self.dialogue.turns) if role in ("", turn.role))
        return next(turns, None)

    def select_last(self, role: str = "") -> None:
        last = self.last_turn(role)
        view = self.transcript.view_of(last) if last is not None else None
        if view is not None:
            view.focus()

    async def show_fault(self, text: str, remedy: str = "") -> None:
        await self._show_card(Card(text, remedy))

    async def show_notice(self, text: str, remedy: str = "") -> None:
        await self._show_card(Card(text, remedy, mark=WARNING))

    def show_settings(self) -> None:
        dialogue = self.dialogue
        system = dialogue.system if dialogue.system != dialogue.default_system else ""
        self._instructions.show(system, dialogue.own)
        self._show_emptiness()

    async def _show_card(self, card: Card) -> None:
        await self._remove_cards()
        await self._cards.mount(card)
        self._show_emptiness()

    async def _remove_cards(self) -> None:
        self._faulted = None
        await self._cards.remove_children()

    async def _show(self, *, follow: bool = False, stays: bool = False) -> None:
        dialogue = self.dialogue
        self.show_settings()
        with self.app.batch_update():
            await self.transcript.show(dialogue.turns, outside=dialogue.dropped, stays=stays)
            await self._show_queue()
        for view in self.transcript.views:
            self._refresh_view(view)
            if isinstance(view, AnswerView) and self.pending_of(view.turn) is None:
                view.follow()
        if follow:
            await self.transcript.show_end()
        self.post_message(Wanted("follow_chat"))

    def _show_emptiness(self) -> None:
        """Show the welcome in a chat without questions, above its instructions and errors."""
        is_empty = not (self.dialogue.turns or self.dialogue.queue)
        self.set_class(is_empty, "-empty")
        has_lines = bool(self._cards.children) or self._instructions.display
        self.transcript.display = not is_empty or has_lines
        if is_empty and self._greeting is None:
            self._greeting = Welcome(self.store, self.engine, self.dialogue.history)
            self.mount(self._greeting, before=self.transcript)
        elif not is_empty and self._greeting is not None:
            self._greeting.remove()
            self._greeting = None

    async def _show_queue(self) -> None:
        needs_model = self._awaits_model and not self.has_model
        await self._queue.show(self.dialogue.queue, needs_model=needs_model)

    def _make_view(self, turn: Turn) -> MessageView:
        if turn.role == ASSISTANT:
            view: MessageView = AnswerView(turn, self.store)
        elif turn.role == USER:
            view = self._questions[turn] = QuestionView(turn, self.engine.count)
        else:
            view = CallView(turn, self.engine.count)
        for one in (view, *self.transcript.views):
            if one is view or one.turn.parent is turn:
                self._refresh_view(one)
        return view

    def _refresh_view(self, view: MessageView) -> None:
        turn, edited = view.turn, self.store.edited
        versions = self.dialogue.versions(turn)
        if turn in versions:
            view.show_versions(versions.index(turn) + 1, len(versions))
        is_after = edited is not None and turn is not edited and edited in path_to(turn)
        view.set_class(is_after, "-after-edited")
        if isinstance(view, AnswerView):
            self._show_line(view)
        elif isinstance(view, CallView):
            view.follow(self._line_of_call(turn), is_asked=turn is self.asked)

    def _line_of_call(self, call: Turn) -> str:
        if self.calling is not None and self.calling[0] is call:
            return "running…"
        if call is self.asked:
            return joined([call.ending, "Ctrl+T decides", "Esc refuses"])
        return call.ending or ("" if call.text else "waits")

    def _show_line(self, view: AnswerView) -> None:
        """Show the figures of an answer beside its question, if both are on the screen at its end.

        Where there is a row below the answer anyway, which tells how it ended or switches versions,
        the figures are part of that.
        """
        turn, line = view.turn, self.line_of(view.turn)
        question = self._questions.get(turn.parent) if turn.parent is not None else None
        if question is not None:
            width = text_width(self.size.width)
            may_be_beside = (
                bool(turn.ending)
                and not turn.ending.endswith((CONTINUES, CONTEXT_FULL))
                and line == self._figures_of(turn)  # else it tells what was read
                and not view.has_versions
                and view.text_height(width) <= self.screen.size.height - _AROUND
            )
            # The panel has the others of the newest answer, which stay where they are then.
            short = [without_panel_figures(line)] * self.store.is_panel_shown
            fitting = (one for one in (line, *short) if question.has_room(one, width))
            beside = next(fitting, "") if may_be_beside else ""
            question.show_figures(beside, view.action_copy)
            line = "" if beside else line
        view.show_line(line)

    def on_resize(self) -> None:
        self._refresh_views()

    def line_of(self, turn: Turn) -> str:
        """The line below an answer: what it was taken from, its figures, and how it ended."""
        read, asked = "", turn.parent
        if asked is not None:
            read = self.libraries.unread.get((self.dialogue.folder, asked.text), "")
        if asked is not None and (sources := sources_of(asked.attachments).values()):
            read = in_words(sources)
            if asks_about_all(asked.text):
                read = joined([read_of_all(sources, self._passages_for(asked)), "/read all"])
        known = frozenset[int](() if turn.is_growing else sources_for(turn))
        fault = unknown_in_words(turn.text, known)
        return joined([read, f"{WARNING} {fault}" if fault else "", self._figures_of(turn)])

    def _passages_for(self, asked: Turn) -> int:
        """How many passages there are where those of a question were found; 0 if unknown."""
        if not self._searched.get(asked):
            sources = sources_of(asked.attachments).values()
            self._searched[asked] = self.libraries.searched(sources)
        return self._searched[asked]

    def _figures_of(self, turn: Turn) -> str:
        """Figures and ending, with the model if not all shown are by the chat's."""
        if (pending := self.pending_of(turn)) is not None:
            return self._line_of_pending(pending)
        is_newest = turn in self._answers and turn is self.last_turn(ASSISTANT)
        if turn.is_interrupted:
            line = "" if turn is self._faulted else joined([turn.lossy, INTERRUPTED])
        elif is_newest and self.store.is_panel_shown:
            line = without_panel_figures(turn.ending)
        else:
            line = turn.ending
        if any(one.model not in ("", self.dialogue.model) for one in self.dialogue.turns):
            line = joined([one_line(turn.model), line])
        return line if turn is self.last_turn() else without_continuation(line)

    def _line_of_pending(self, pending: PendingAnswer) -> str:
        if pending.answer.is_stopped:
            return "stopping…"
        if program := self.waits_for:
            return f"waiting for {program}"
        part = self.reading.line(self.engine.status.loaded) if self.reading is not None else ""
        metrics = None if self.store.is_panel_shown else pending.answer.metrics
        reading = self._waits_for_answer(pending) or pending.reading
        return joined([part, reading or (live_line(metrics) if metrics is not None else "")])

    def _waits_for_answer(self, pending: PendingAnswer) -> str:
        """That an answer is written after another one of the user's; empty if it is not."""
        first = self.growing[0]
        if pending.answer.stage is not Stage.QUEUED or first is pending:
            return ""
        if first.dialogue is pending.dialogue:
            return "waiting"
        return f"waiting for the answer in {quoted_title(first.dialogue.title)}"

    def _refresh_views(self) -> None:
        for view in self.transcript.views:
            self._refresh_view(view)

    # Calls of tools

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
            await self.show_notice(what, CONTINUES)
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
