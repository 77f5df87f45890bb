"""The engine's session with the work it does between answers."""

from contextlib import ExitStack
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Self

from app.engine.indexing import Indexing
from app.engine.session import Session
from app.loading.loaded_files import LoadedFiles
from app.prompt_cache.saved_states import SavedStates
from app.prompt_cache.state_keeper import Job, StateKeeper


@dataclass(frozen=True, slots=True)
class ActiveSession:
    """A session, the keeper of its prompt cache, the index of earlier chats, the model's files."""

    session: Session
    keeper: StateKeeper
    indexing: Indexing
    files: LoadedFiles

    @classmethod
    def of(cls, session: Session) -> Self:
        """Take over a session; it is closed if that fails.

        Raises:
            SpecchatError: the settings cannot be read.
        """
        with ExitStack() as stack:
            stack.callback(session.close)
            states = SavedStates(session.paths.saved_states)
            keeper = StateKeeper(session.model.info, session.context, states)
            files = LoadedFiles.of(session.model.info.path)
            active = cls(session, keeper, Indexing.of(session), files)
            stack.pop_all()
        return active

    def next_job(self, jobs: SimpleQueue[Job]) -> Job:
        """The next job of a queue; after a while without one, background work."""
        worker = self.indexing if self.indexing.is_due else self.keeper
        return worker.next_job(jobs)

    def answered(self) -> None:
        """Note that the context and the history have changed."""
        self.keeper.answered()
        self.indexing.changed()

    def close(self) -> None:
        """Save what is worth it and free everything."""
        self.indexing.close()
        self.keeper.close()
        self.session.close()
