"""What the engine's session does between answers: reading ahead, saving, indexing, measuring."""

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from app.ahead.certain_tokens import CertainTokens
from app.ahead.expected import Expectation
from app.ahead.piece_reader import PieceReader
from app.ahead.reading_ahead import ReadingAhead
from app.chat.attachments import in_full
from app.drafting.drafter_building import open_corpus
from app.engine.jobs import LOOK_AGAIN_SECONDS, MEASURE_AFTER_SECONDS, IdleWork
from app.engine.session import Session
from app.engine.upgrade_guard import Guarding
from app.history import History, HistoryError
from app.history.records import Version
from app.history.store import open_history
from app.learned.calibrations import Calibrations
from app.loading.loaded_files import LoadedFiles
from app.paths import Paths
from app.prompt_cache.saved_states import SavedStates
from app.prompt_cache.state_keeper import StateKeeper, memory_bound
from app.settings.in_effect import is_on
from backends.base import PassStoppedError, SpecchatError, UsageError
from backends.base.images import without_images
from backends.chat.chat_template import ChatTemplate, plain_form
from backends.chat.message import Message
from decoding.drafters.retrieval.corpus import Corpus
from decoding.drafters.retrieval.segment_file import Document, Note

MOST_TOKENS = 10_000_000
"""Most tokens in the index, of the latest chats: 80 MB on disk."""

_BATCH_TOKENS = 1 << 18
"""Tokens indexed at once when many chats are new."""

_INDEX_AFTER_SECONDS = 1.0
"""Idle time before indexing begins: an answer is saved by then."""


class Indexing:
    """Indexes chats with a model's tokenizer and template, on the engine's thread."""

    def __init__(self, corpus: Corpus, template: ChatTemplate, paths: Paths) -> None:
        self._corpus = corpus
        self._template = template
        self._paths = paths
        self._work: Generator[None, None, None] | None = None
        self._is_due = True
        self._is_over = False
        self._news: list[str] = []

    @classmethod
    def of(cls, session: Session) -> "Indexing":
        """Index for a session's vocabulary; deletes all indexes if the user turned them off."""
        paths = session.paths
        indexing = cls(open_corpus(paths, session.model), session.template, paths)
        if not is_on("retrieval", paths):
            indexing.close()
            indexing._is_over = True
            shutil.rmtree(paths.retrieval, ignore_errors=True)
        return indexing

    @property
    def is_due(self) -> bool:
        return not self._is_over and (self._is_due or self._work is not None)

    def changed(self) -> None:
        self._is_due = True

    def news(self) -> str:
        """Return each message for the user once."""
        messages = "; ".join([*self._news, *self._corpus.faults])
        self._news.clear()
        self._corpus.faults.clear()
        return messages

    def due_in(self, idle: float) -> float | None:
        return _INDEX_AFTER_SECONDS - idle if self.is_due else None

    def run(self, is_wanted: Callable[[], bool]) -> None:
        try:
            while self.is_due and is_wanted():
                if self._work is None:
                    self._is_due = False
                    self._work = self._catch_up()
                if next(self._work, self) is self:
                    self._work = None
        except HistoryError:  # another process may be writing; retried later
            self._work = None
        except Exception as error:  # an error of the index must not stop answers
            self._work = None
            self._is_over = True
            self._news.append(f"earlier chats are no longer indexed: {_reason(error)}")

    def close(self) -> None:
        """Stop and close the files; unwritten chats are indexed at the next start."""
        if self._work is not None:
            self._work.close()
        self._corpus.close()

    def _catch_up(self) -> Generator[None, None, None]:
        """Remove deleted chats, index new ones, the latest first, and merge segments."""
        if not self._paths.history.exists():
            self._corpus.forget_all_but(())
            return
        with closing(open_history(self._paths, repairs=False)) as history:
            versions = history.versions()
            self._corpus.refresh()
            self._corpus.tidy()
            self._corpus.forget_all_but([version.number for version in versions])
            yield from self._corpus.check()
            yield from self._index(history, versions)
            yield from self._corpus.merge()
            # A chat removed meanwhile may have been indexed after it was forgotten.
            remaining = [version.number for version in history.versions()]
            self._is_due = self._corpus.forget_all_but(remaining) or self._is_due

    def _index(self, history: History, versions: list[Version]) -> Generator[None, None, None]:
        indexed = self._corpus.notes()
        room = MOST_TOKENS
        kept: set[int] = set()
        batch: list[Document] = []
        for version in versions:
            fresh: list[Document] = []
            note, length = indexed.get(version.number, (None, 0))
            if note is None or note.stamp != version.stamp:
                fresh = [self._document(history, version)]
                length = len(fresh[0].tokens)
                yield
            room -= length
            if room < 0:
                break
            kept.add(version.number)
            batch += fresh
            if sum(len(document.tokens) for document in batch) >= _BATCH_TOKENS:
                yield from self._corpus.add(batch)
                batch = []
        if batch:
            yield from self._corpus.add(batch)
        self._corpus.keep(kept)

    def _document(self, history: History, version: Version) -> Document:
        """The tokens of a chat, by the model's template unless that refuses it."""
        messages = [
            Message(saved.role, without_images(in_full(saved.text, saved.attachments)))
            for saved in history.path(version.number)
            if saved.text
        ]
        try:
            prompt = self._template.prompt(messages)
        except UsageError:  # another model's chat
            prompt = self._template.raw(plain_form(messages))
        tokens = np.array(prompt.tokens, np.uint32)
        return Document(Note(version.number, version.stamp, version.updated, time.time()), tokens)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) if isinstance(error, SpecchatError) else type(error).__name__


_SLOWEST_SECONDS, _SLOWEST_STOPPED = 0.1, 0.5
"""Longest plain step: passes over 16 tokens then keep a request waiting for less than a second; and
where passes can be stopped: all that is measured takes less than a minute. Guesses; not
measured."""

_NEW_AFTER_SECONDS = 1.0
"""Idle time before a model that is new here is measured: a request that was waiting is there."""


class Calibrating:
    """Measures costs that are uncertain, have drifted, or are of as many tokens as a chat holds.

    may_measure: why nothing may be measured now, "" if it may. measure_new: measures a model that
    was ready before it was measured, and builds its drafters, while its argument is true.
    """

    def __init__(
        self,
        session: Session,
        may_measure: Callable[[], str],
        measure_new: Callable[[Callable[[], bool]], None] = lambda _: None,
    ) -> None:
        self._session = session
        self._may_measure, self._measure_new = may_measure, measure_new
        self._is_due = True
        self._not_before = 0.0

    def changed(self) -> None:
        self._is_due = True

    def due_in(self, idle: float) -> float | None:
        if not self._session.drafting.requested:
            return _NEW_AFTER_SECONDS - idle
        if not self._is_due or not self._is_possible:
            return None
        return max(MEASURE_AFTER_SECONDS - idle, self._not_before - time.monotonic())

    @property
    def _is_possible(self) -> bool:
        drafting, info = self._session.drafting, self._session.model.info
        if drafting.controller is None or drafting.costs_file is None:
            return False
        stops_passes = self._session.context.facts.stops_passes
        slowest = _SLOWEST_STOPPED if stops_passes else _SLOWEST_SECONDS
        is_slow = drafting.controller.costs.seconds(1) > slowest
        return not (is_slow or info.streamed_bytes_per_token)

    def run(self, is_wanted: Callable[[], bool]) -> None:
        """Measure what the next start would, unless is_wanted returns False before a pass."""
        if not self._session.drafting.requested:
            self._measure_new(is_wanted)
            return
        if self._may_measure():
            self._not_before = time.monotonic() + LOOK_AGAIN_SECONDS
            return
        session, self._is_due = self._session, False
        calibrations = Calibrations(session.paths, lambda _: None)
        try:
            is_new = calibrations.improve_target(session.model, session.context, is_wanted)
            if is_new:  # replies would delete it again, as theirs have drifted from older ones
                session.drafting = replace(session.drafting, costs_file=None)
            held = calibrations.measure_held(session.model, session.context, is_wanted)
            if held and session.drafting.controller is not None:
                session.drafting.controller.costs.learn_held(held)
        except PassStoppedError:
            self._is_due = True
        except Exception:  # the next start measures it, and tells of errors
            return


@dataclass(frozen=True, slots=True)
class ActiveSession:
    """A session, its idle work (the first five that follow), and its files."""

    session: Session
    reading: ReadingAhead
    keeper: StateKeeper
    indexing: Indexing
    calibrating: Calibrating
    guarding: Guarding
    files: LoadedFiles

    @classmethod
    def of(
        cls,
        session: Session,
        expectation: Expectation,
        tell: Callable[[str], None],
        measure: Callable[[Callable[[], bool]], None],
    ) -> Self:
        """Take over a session; it is closed if that fails.

        tell: of what is found in idle time. measure: as of Calibrating.
        """
        with ExitStack() as stack:
            stack.callback(session.close)
            context, paths = session.context, session.paths
            states = SavedStates(paths.saved_states)
            keeper = StateKeeper(session.model.info, context, states, memory_bound(paths))
            reader = PieceReader(context, lambda: session.drafting.controller)
            certain = CertainTokens(session.template, context.facts.n_ctx)
            refusal = "what is not sent stays here" if session.model.info.host else ""
            active = cls(
                session,
                ReadingAhead(expectation, context, certain, reader, keeper, paths, refusal),
                keeper,
                Indexing.of(session),
                Calibrating(session, expectation.may_read, measure),
                Guarding(session, expectation.may_read, tell),
                LoadedFiles.of(session.model.info.path),
            )
            stack.pop_all()
        return active

    @property
    def idle_work(self) -> tuple[IdleWork, ...]:
        """Work for the time between requests, the most urgent first."""
        first = self.reading, self.keeper, self.session.documents
        return *first, self.calibrating, self.indexing, self.guarding

    def answered(self) -> None:
        """Note that the context, the history and the costs of passes have changed."""
        self.keeper.answered()
        self.session.documents.changed()
        self.indexing.changed()
        self.calibrating.changed()

    def close(self) -> None:
        with ExitStack() as stack:  # each, whatever the others raise
            for part in (self.session, self.keeper, self.indexing, self.reading):
                stack.callback(part.close)
