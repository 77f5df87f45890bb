"""Opening a session from the command line."""

from app.cli import terminal
from app.cli.interrupt import deferred
from app.paths import Paths
from app.session import DEFAULT_CONTEXT, Session, SessionOptions


def open_session(session_options: SessionOptions, usual_context: int = DEFAULT_CONTEXT) -> Session:
    """Load everything, saying what is going on; the first Ctrl-C ends it at the next phase.

    Raises:
        SpecchatError: an option cannot be met, or the model cannot be run.
        KeyboardInterrupt: it was interrupted.
    """
    try:
        return _open(session_options, usual_context)
    except KeyboardInterrupt:
        terminal.note("")
        raise
    finally:
        terminal.clear_status()


def _open(session_options: SessionOptions, usual_context: int) -> Session:
    with deferred() as stop:

        def notify(text: str) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            terminal.status(text)

        paths = Paths.of_this_user()
        session = Session.open(session_options, paths, notify, usual_context)
        if stop.is_set():
            session.close()
    return session
