"""Opens a session and shows what it is doing."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event

from app.cli.terminal import stderr
from app.cli.terminal.interrupt import deferred
from app.engine import session_opening
from app.engine.session import Session
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions
from app.paths import Paths
from backends.base import PassStoppedError
from backends.base.pass_stop import stopping_passes


def open_session(
    session_options: SessionOptions,
    usual_context: int = DEFAULT_CONTEXT,
    *,
    every_form: bool = False,
) -> Session:
    """Load models and drafters with a status line; the first Ctrl-C stops at the next phase.

    Raises:
        SpecchatError: an option cannot be satisfied, or the model cannot run.
        KeyboardInterrupt: the user interrupted it.
    """
    with phases() as (notify, stop):
        paths = Paths.of_this_user()
        session = session_opening.open_session(
            session_options, paths, notify, usual_context, every_form=every_form
        )
        if stop.is_set():
            session.close()
    return session


@contextmanager
def phases() -> Generator[tuple[Callable[[str], None], Event], None, None]:
    """Yield a function that shows a phase of long work, and the event of an interrupt.

    The first Ctrl-C sets the event, and the work ends at its next phase or within a pass.

    Raises:
        KeyboardInterrupt: the user interrupted it.
    """
    try:
        with deferred() as stop:

            def notify(text: str) -> None:
                if stop.is_set():
                    raise KeyboardInterrupt
                stderr.status(text)

            with stopping_passes(stop.is_set):
                yield notify, stop
    except PassStoppedError as stopped:
        raise KeyboardInterrupt from stopped
    except KeyboardInterrupt as interrupt:
        stderr.note("\n".join(getattr(interrupt, "__notes__", [])))
        raise
    finally:
        stderr.clear_status()
