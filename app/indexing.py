"""Keeps the index of earlier chats in step with the history, while nobody waits for an answer."""

import shutil
import time
from collections.abc import Callable, Generator
from contextlib import closing
from queue import Empty, SimpleQueue

import numpy as np

from app.drafter_building import open_corpus
from app.history import History, HistoryError
from app.history.chat import Version
from app.history.derived_data import open_history
from app.paths import Paths
from app.session import Session
from app.settings.learning import may_index
from app.state_keeper import Job
from backends.base import SpecchatError
from backends.chat.chat_template import ChatTemplate, Message
from decoding.retrieval.corpus import Corpus
from decoding.retrieval.document import Document, Note

MOST_TOKENS = 10_000_000
"""Of all chats indexed, the latest first: 80 MB on disk."""

_BATCH_TOKENS = 1 << 18
"""Indexed together, where many chats are new."""

_PAUSE_SECONDS = 1.0
"""Silence before the work begins: an answer is saved by then."""


class Indexing:
    """Used by the thread that runs the model, whose tokenizer and template it takes."""

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
        """One for a session's vocabulary; where the user wants none, it deletes what there is.

        Raises:
            SpecchatError: the settings cannot be read.
        """
        paths = session.paths
        indexing = cls(open_corpus(paths, session.model), session.template, paths)
        if not may_index(paths):
            indexing.close()
            indexing._is_over = True
            shutil.rmtree(paths.retrieval, ignore_errors=True)
        return indexing

    @property
    def is_due(self) -> bool:
        """Whether there may be something to do."""
        return not self._is_over and (self._is_due or self._work is not None)

    def changed(self) -> None:
        """The history is other than it was."""
        self._is_due = True

    def news(self) -> str:
        """What the user should know, each thing once."""
        told = "; ".join([*self._news, *self._corpus.faults])
        self._news.clear()
        self._corpus.faults.clear()
        return told

    def next_job(self, jobs: SimpleQueue[Job]) -> Job:
        """What comes next in a queue; when nothing does for a while, some of this work."""
        try:
            return jobs.get(timeout=_PAUSE_SECONDS)
        except Empty:
            return lambda: self.run(jobs.empty)

    def run(self, is_wanted: Callable[[], bool]) -> None:
        """Go on until all is done, or it is not wanted; asked every few milliseconds."""
        try:
            while self.is_due and is_wanted():
                if self._work is None:
                    self._is_due = False
                    self._work = self._catch_up()
                if next(self._work, self) is self:
                    self._work = None
        except HistoryError:  # another program may be writing; next time will do
            self._work = None
        except Exception as error:  # whatever happens to the index, answers go on
            self._work = None
            self._is_over = True
            self._news.append(f"earlier chats are not indexed any more: {_words(error)}")

    def close(self) -> None:
        """Stop and let go of the files; what is not written yet is indexed at the next start."""
        if self._work is not None:
            self._work.close()
        self._corpus.close()

    def _catch_up(self) -> Generator[None, None, None]:
        """Forget what is gone, index what is new, the latest first, and merge."""
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
            # What was removed meanwhile may have been written after it was forgotten.
            remaining = [version.number for version in history.versions()]
            self._is_due = self._corpus.forget_all_but(remaining) or self._is_due

    def _index(self, history: History, versions: list[Version]) -> Generator[None, None, None]:
        """Index each chat that is not, and count only as many as there is room for."""
        held = self._corpus.notes()
        room = MOST_TOKENS
        kept: set[int] = set()
        batch: list[Document] = []
        for version in versions:
            fresh: list[Document] = []
            note, length = held.get(version.number, (None, 0))
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
        """A chat as the model reads it."""
        messages = [
            Message(saved.role, saved.text)
            for saved in history.messages(version.number)
            if saved.text
        ]
        tokens = np.array(self._template.prompt(messages).tokens, np.uint32)
        return Document(Note(version.number, version.stamp, version.updated, time.time()), tokens)


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) if isinstance(error, SpecchatError) else type(error).__name__
