"""Writes into the store what the engine and the chat are doing."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from app.engine.answer import Answer
from app.engine.engine import Engine
from app.engine.metrics import PLAIN, ReplyMetrics, SessionSpeedup
from app.engine.status import Loaded
from app.tui import wording
from app.tui.chat.view import ChatView
from app.tui.store import Live, Second, Store
from decoding.telemetry import DrafterStatistics

_READING_SECONDS, _DECODING_SECONDS = 0.5, 1.0
"""Between two snapshots while answering: each is painted, which takes time from the model."""

_SECONDS = 60
_NO_ANSWERS = SessionSpeedup()


class LiveClock:
    """Makes a snapshot of an answer when one is due, and returns the last one in between."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._live = Live()
        self._taken_at = float("-inf")
        self._final: Answer | None = None
        """The answer whose final figures were taken."""
        self._answer: Answer | None = None
        self._seconds = _Seconds()

    def tick(
        self,
        answer: Answer | None,
        loaded: Loaded | None,
        session: SessionSpeedup = _NO_ANSWERS,
    ) -> Live:
        """The figures of the newest answer, for the store; call it on a timer.

        loaded: the model in use; the figures of another one are left out. session: all answers so
        far.
        """
        if answer is None or loaded is None or _is_of_another_model(answer, loaded):
            return self._other(answer, session)
        now = self._now()
        if answer is not self._answer:
            self._begin(answer)
        is_done = answer.is_done  # before its metrics, which are final then
        is_settled = self._final is answer and self._live.answers == session.answers
        if is_settled if is_done else now - self._taken_at < self._pause:
            return self._live
        self._taken_at = now
        self._final = answer if is_done else None
        metrics = answer.metrics
        if not is_done:
            self._seconds.follow(now, metrics)
        self._live = Live(
            metrics,
            answer.stage,
            answer.read,
            (metrics.plain_tokens_per_second if metrics else None) or self._live.plain,
            metrics.comparison if metrics else PLAIN,
            self._seconds.minute,
            session.comparison,
            session.answers,
        )
        return self._live

    @property
    def _pause(self) -> float:
        return _READING_SECONDS if self._live.metrics is None else _DECODING_SECONDS

    def _other(self, answer: Answer | None, session: SessionSpeedup) -> Live:
        """No figures of an answer; the last minute is forgotten once another model answers."""
        if answer is not None and answer.metrics is not None:
            self._seconds = _Seconds()
        self._final = None
        self._live = Live(session=session.comparison, answers=session.answers)
        return self._live

    def _begin(self, answer: Answer) -> None:
        self._answer = answer
        self._taken_at = float("-inf")
        self._seconds.restart()


class _Seconds:
    def __init__(self) -> None:
        self.minute: tuple[Second, ...] = ()
        self.restart()

    def restart(self) -> None:
        self._begun_at: float | None = None
        self._tokens = 0
        self._accepted: dict[str, int] = {}

    def follow(self, now: float, metrics: ReplyMetrics | None) -> None:
        if self._begun_at is None:
            self._begun_at = now
        if now - self._begun_at < 1.0:
            return
        tokens = metrics.completion_tokens if metrics else 0
        by_drafter = metrics.by_drafter if metrics else dict[str, DrafterStatistics]()
        rate = (tokens - self._tokens) / (now - self._begun_at)
        second = Second(rate, self._main_drafter(by_drafter))
        self.minute = (*self.minute, second)[-_SECONDS:]
        self._begun_at, self._tokens = now, tokens
        self._accepted = {name: figures.accepted for name, figures in by_drafter.items()}

    def _main_drafter(self, by_drafter: Mapping[str, DrafterStatistics]) -> str:
        """The drafter with the most tokens accepted in this second; empty if none was."""
        gained = {
            name: figures.accepted - self._accepted.get(name, 0)
            for name, figures in by_drafter.items()
        }
        main = max(gained, key=lambda name: gained[name], default="")
        return main if gained.get(main) else ""


def _is_of_another_model(answer: Answer, loaded: Loaded) -> bool:
    metrics = answer.metrics
    return metrics is not None and metrics.model != loaded.info


class StoreWriter:
    """Looks at engine and chat when it is told to; the store tells its watchers what changed."""

    def __init__(self, store: Store, engine: Engine, view: ChatView) -> None:
        self._store = store
        self._engine = engine
        self._view = view
        self._clock = LiveClock()
        self._session = SessionSpeedup()

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
