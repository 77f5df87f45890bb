"""The engine's session with the work it does between answers."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

from app.ahead.certain_tokens import CertainTokens
from app.ahead.idle_work import IdleWork
from app.ahead.piece_reader import PieceReader
from app.ahead.reading_ahead import AheadPorts, ReadingAhead
from app.engine.calibrating import Calibrating
from app.engine.indexing import Indexing
from app.engine.session import Session
from app.loading.loaded_files import LoadedFiles
from app.prompt_cache.kept_states import KeptStates
from app.prompt_cache.memory_bound import memory_bound
from app.prompt_cache.saved_states import SavedStates
from app.prompt_cache.state_keeper import StateKeeper


@dataclass(frozen=True, slots=True)
class ActiveSession:
    """A session, its idle work (the first four that follow), and its files."""

    session: Session
    reading: ReadingAhead
    keeper: StateKeeper
    indexing: Indexing
    calibrating: Calibrating
    files: LoadedFiles

    @classmethod
    def of(cls, session: Session, ports: AheadPorts) -> Self:
        """Take over a session; it is closed if that fails.

        Raises:
            SpecchatError: the settings cannot be read.
        """
        with ExitStack() as stack:
            stack.callback(session.close)
            states = SavedStates(session.paths.saved_states)
            kept = KeptStates(memory_bound(session.paths))
            keeper = StateKeeper(session.model.info, session.context, states, kept)
            files = LoadedFiles.of(session.model.info.path)
            reading = _reading(session, keeper, ports)
            calibrating = Calibrating(session, ports.may_read)
            active = cls(session, reading, keeper, Indexing.of(session), calibrating, files)
            stack.pop_all()
        return active

    @property
    def idle_work(self) -> tuple[IdleWork, ...]:
        """Work for the time between requests, the most urgent first."""
        return self.reading, self.keeper, self.indexing, self.calibrating

    def answered(self) -> None:
        """Note that the context, the history and the costs of passes have changed."""
        self.keeper.answered()
        self.indexing.changed()
        self.calibrating.changed()

    def close(self) -> None:
        """Save what is worth it and free everything."""
        with ExitStack() as stack:  # each, whatever the others raise
            for part in (self.session, self.keeper, self.indexing, self.reading):
                stack.callback(part.close)


def _reading(session: Session, keeper: StateKeeper, ports: AheadPorts) -> ReadingAhead:
    context = session.context
    reader = PieceReader(context, lambda: session.drafting.controller)
    certain = CertainTokens(session.template, context.n_ctx)
    return ReadingAhead(ports, context, certain, reader, keeper, session.paths)
