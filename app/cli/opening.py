"""Opening a session from the command line."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

from app.cli.terminal import stderr
from app.cli.terminal.interrupt import deferred
from app.paths import Paths
from app.session import Session
from app.session_options import DEFAULT_CONTEXT, SessionOptions


def open_session(
    session_options: SessionOptions,
    usual_context: int = DEFAULT_CONTEXT,
    *,
    every_form: bool = False,
) -> Session:
    """Load everything, saying what is going on; the first Ctrl-C ends it at the next phase.

    Raises:
        SpecchatError: an option cannot be met, or the model cannot be run.
        KeyboardInterrupt: it was interrupted.
    """
    with phases() as (notify, stop):
        paths = Paths.of_this_user()
        session = Session.open(session_options, paths, notify, usual_context, every_form=every_form)
        if stop.is_set():
            session.close()
    return session


@contextmanager
def phases() -> Iterator[tuple[Callable[[str], None], Event]]:
    """What shows each phase of long work; the first Ctrl-C sets the event and ends it at the next.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    try:
        with deferred() as stop:

            def notify(text: str) -> None:
                if stop.is_set():
                    raise KeyboardInterrupt
                stderr.status(text)

            yield notify, stop
    except KeyboardInterrupt as interrupt:
        stderr.note("\n".join(getattr(interrupt, "__notes__", [])))
        raise
    finally:
        stderr.clear_status()
