"""Writes into the store what the engine and the chat are doing."""

from dataclasses import replace

from app.engine.engine import Engine
from app.engine.engine_status import Loaded
from app.engine.pooled_comparison import PooledComparison
from app.engine.reply_metrics import ReplyMetrics
from app.tui import wording
from app.tui.conversation.chat_view import ChatView
from app.tui.panel.live_clock import LiveClock
from app.tui.store import Store


class StoreWriter:
    """Looks at engine and chat when it is told to; the store tells its watchers what changed."""

    def __init__(self, store: Store, engine: Engine, view: ChatView) -> None:
        self._store = store
        self._engine = engine
        self._view = view
        self._clock = LiveClock()
        self._session = PooledComparison()

    def add_answer(self, metrics: ReplyMetrics) -> None:
        """Count an answer that has ended among those of this session."""
        self._session = self._session.with_answer(metrics)

    def write(self) -> None:
        """Write everything that may have changed."""
        status = self._engine.status
        self._store.status = replace(status, ahead=None)  # which changes at each piece
        self._store.ahead = status.ahead if self._view.is_idle else None
        self._store.draft = self._engine.draft
        self.write_chat()
        self._write_figures()

    def write_chat(self) -> None:
        """Write the facts of the chat."""
        store, view = self._store, self._view
        dialogue = view.dialogue
        store.title = dialogue.title
        store.not_saved = dialogue.fault
        store.queued = len(dialogue.queue)
        store.is_answering = not view.is_idle
        last = dialogue.turns[-1] if dialogue.turns else None
        store.is_broken_off = view.is_idle and last is not None and last.is_interrupted

    def _write_figures(self) -> None:
        loaded = self._engine.status.loaded
        live = self._clock.tick(self._view.answer, loaded, self._session)
        if live is not self._store.live:
            self._store.live = live
        rule = self._view.answering.sampling.lossy_in_effect
        metrics = _of_these_drafters(live.metrics, loaded)
        self._store.drafting = wording.drafting(self._engine.draft, metrics, rule)


def _of_these_drafters(metrics: ReplyMetrics | None, loaded: Loaded | None) -> ReplyMetrics | None:
    """The figures of an answer; None if the model has other drafters since.

    A reply's own drafters come after those of the model.
    """
    if metrics is None or loaded is None:
        return None
    return metrics if metrics.drafters[: len(loaded.drafters)] == loaded.drafters else None
