"""Writes into the store what the engine and the chat are doing."""

from collections.abc import Mapping
from dataclasses import replace

from app.chat.sources import sources_of
from app.dialogue.tree import USER
from app.engine.answer import Answer
from app.engine.metrics import ReplyMetrics, SessionSpeedup
from app.engine.status import Loaded
from app.tui import wording
from app.tui.chat.view import ChatView
from app.tui.store import Live, Second
from decoding.telemetry import DrafterStatistics

_SECONDS = 60
_NO_ANSWERS = SessionSpeedup()


class LiveFigures:
    """What the screen shows of an answer's figures, as often as the engine publishes them.

    The last minute goes by the answer's own clock: time that it was read or decoded.
    """

    def __init__(self) -> None:
        self._live = Live()
        self._answer: Answer | None = None
        self._minute: tuple[Second, ...] = ()
        self._begin(None)

    def _begin(self, answer: Answer | None) -> None:
        self._answer, self._at, self._tokens = answer, 0.0, 0
        self._accepted: dict[str, int] = {}

    def of(
        self, answer: Answer | None, loaded: Loaded | None, session: SessionSpeedup = _NO_ANSWERS
    ) -> Live:
        """The figures of the newest answer.

        loaded: the model in use; the figures of another one are left out. session: all answers so
        far.
        """
        is_done = answer is not None and answer.is_done  # before its metrics, which are final then
        metrics = answer.metrics if answer is not None else None
        if answer is None or loaded is None or (metrics and metrics.model != loaded.info):
            if metrics is not None:  # of another model
                self._minute = ()
                self._begin(None)
            self._live = Live(session=session.comparison, answers=session.answers)
            return self._live
        if answer is not self._answer:
            self._begin(answer)
        if metrics is not None and not is_done:
            self._follow(metrics)
        plain = (metrics.plain_tokens_per_second if metrics else None) or self._live.plain
        self._live = Live(metrics, plain, self._minute, session.comparison, session.answers)
        return self._live

    def _follow(self, metrics: ReplyMetrics) -> None:
        if metrics.told_by_server is not None and not metrics.completion_tokens:
            return  # some servers tell at the end how many there are
        now = (metrics.prefill_seconds or 0.0) + (metrics.decode_seconds or 0.0)
        passed = round(now - self._at)
        if not passed:
            return
        rate = (metrics.completion_tokens - self._tokens) / (now - self._at)
        second = Second(rate, self._main_drafter(metrics.by_drafter))
        self._minute = (*self._minute, *[second] * passed)[-_SECONDS:]
        self._at, self._tokens = now, metrics.completion_tokens
        self._accepted = {name: one.accepted for name, one in metrics.by_drafter.items()}

    def _main_drafter(self, by_drafter: Mapping[str, DrafterStatistics]) -> str:
        """The drafter with the most tokens accepted since the last second; empty if none was."""
        gained = {
            name: figures.accepted - self._accepted.get(name, 0)
            for name, figures in by_drafter.items()
        }
        main = max(gained, key=lambda name: gained[name], default="")
        return main if gained.get(main) else ""


class StoreWriter:
    """Looks at engine and chat when it is told to; the store tells its watchers what changed."""

    def __init__(self, view: ChatView) -> None:
        self._store, self._engine, self._view = view.store, view.engine, view
        self._figures = LiveFigures()

    def write(self) -> None:
        status = self._engine.status
        self._store.status = replace(status, ahead=None)  # which changes at each piece
        self._store.waiting_program = self._engine.waiting_program
        self._store.ahead = status.ahead if self._view.is_idle else None
        self._store.draft = self._engine.draft
        self.write_chat()
        self._write_figures()

    def write_chat(self) -> None:
        store, view = self._store, self._view
        dialogue = view.dialogue
        store.title = dialogue.title
        store.not_saved = view.unsaved
        store.queued = len(dialogue.queue)
        store.is_answering = not view.is_idle
        asked = view.last_turn(USER)
        store.sources = tuple(sources_of(asked.attachments if asked else ()).values())
        last = dialogue.turns[-1] if dialogue.turns else None
        is_interrupted = last is not None and last.is_interrupted
        store.is_broken_off = view.is_idle and is_interrupted
        store.is_asked = view.asked is not None

    def _write_figures(self) -> None:
        loaded = self._engine.status.loaded
        live = self._figures.of(self._view.answer, loaded, self._view.session)
        self._store.live = live
        rule = self._view.answering.sampling.lossy_in_effect
        metrics = _of_these_drafters(live.metrics, loaded)
        is_remote = loaded is not None and loaded.is_remote
        drafting = wording.drafting(self._engine.draft, metrics, rule)
        self._store.drafting = "the server's" if is_remote else drafting


def _of_these_drafters(metrics: ReplyMetrics | None, loaded: Loaded | None) -> ReplyMetrics | None:
    """The figures of an answer; None if the model has other drafters since.

    A reply's own drafters come after those of the model.
    """
    if metrics is None or loaded is None:
        return None
    return metrics if metrics.drafters[: len(loaded.drafters)] == loaded.drafters else None
