"""A session on the command line: opened with a status line, its answers printed as they come."""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from app.chat.attachments import Attachment, AttachmentKind
from app.chat.read_all import Plan
from app.cli.terminal import stderr, stdout
from app.cli.terminal.interrupt import deferred, interruptible
from app.engine import session_opening
from app.engine.answerer import Answerer, loaded_of, metrics_of
from app.engine.remote_session import open_remote
from app.engine.reply import Reply, Request
from app.engine.session import Session
from app.loading.session_options import DEFAULT_CONTEXT, SessionOptions
from app.paths import Paths
from app.tui import wording
from app.tui.chat.reading import time_left
from app.tui.wording import joined
from backends.base import PassStoppedError
from backends.base.model import stopping_passes
from backends.chat.chat_template import Prompt
from decoding.events import FinishReason, Prefill

if TYPE_CHECKING:
    from app.engine.metrics import ReplyMetrics


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


def open_answerer(options: SessionOptions) -> Answerer:
    """What answers with these options, a server or a model here, as open_session opens one.

    Raises:
        SpecchatError: there is none.
        KeyboardInterrupt: the user interrupted it.
    """
    if not options.asks_server:
        return open_session(options)
    with phases() as (notify, _):
        return open_remote(options, Paths.of_this_user(), notify)


@contextmanager
def phases() -> Generator[tuple[Callable[[str], None], Event], None, None]:
    """Yield a function that shows a phase of long work, and the event of an interrupt.

    The first Ctrl-C sets the event, and the work ends at its next phase or within a pass.

    Raises:
        KeyboardInterrupt: the user interrupted it.
    """
    try:
        with deferred() as stop, stopping_passes(stop.is_set):
            yield partial(show_phase, stop), stop
    except PassStoppedError as stopped:
        raise KeyboardInterrupt from stopped
    except KeyboardInterrupt as interrupt:
        stderr.note("\n".join(getattr(interrupt, "__notes__", [])))
        raise
    finally:
        stderr.clear_status()


def show_phase(stop: Event, text: str) -> None:
    """Show what long work does next, or end it there if the user has interrupted it."""
    if stop.is_set():
        raise KeyboardInterrupt
    stderr.status(text)


def read_all(
    session: Answerer, request: Request, texts: Mapping[str, str], kept: dict[str, str]
) -> tuple[tuple[Attachment, ...], bool]:
    """What a question about all of many texts is answered from, and whether that is all of them.

    They are read as a whole, or in parts until the notes on these fit; Ctrl-C stops that. request:
    the question alone. kept: the notes by what they are on; what is in it is not read again.
    """

    async def count(text: str) -> int:
        return session.count(text)

    system, question = request.conversation.system, request.conversation.turns[-1].content
    left, loaded = [*texts.items()], loaded_of(session)
    n_ctx = loaded.context_size
    metrics: ReplyMetrics | None = None
    while not (plan := asyncio.run(Plan.of(question, system, left, n_ctx, count))).is_whole:
        notes = list[str]()
        for number in range(1, len(plan.parts) + 1):
            key = f"{question}\0{plan.outline.text}\0{number}"
            if key not in kept:
                stderr.note(joined([plan.label(number), time_left(plan, number, metrics, loaded)]))
                part = plan.conversation(number, system)
                part.think = request.conversation.think
                most = min(request.max_tokens, plan.note_tokens)
                free = replace(request.options, grammar=None)
                asked = replace(request, conversation=part, max_tokens=most, options=free)
                reply = Reply(asked)
                prompt, _ = session.prompt(reply.request)
                stream_answer(session, prompt, reply, shown=False)
                stderr.clear_status()
                if reply.finish_reason is FinishReason.CANCELLED:
                    stderr.note(f"stopped in {plan.label(number)}")
                    return plan.notes(notes), False
                kept[key], metrics = reply.text, metrics_of(session, reply)
            notes.append(kept[key])
        left = [(one.name, one.text) for one in plan.notes(notes)]
    return tuple(Attachment(AttachmentKind.FILE, *one) for one in left), True


_ENDINGS = {
    FinishReason.LENGTH: "cut at --max-tokens",
    FinishReason.CONTEXT: "the context is full",
    FinishReason.CANCELLED: "stopped",
}


def stats_line(session: Answerer, reply: Reply) -> str:
    """Measured figures of a reply that ended, and how it ended if not by itself."""
    metrics = metrics_of(session, reply)
    is_counted = metrics.told_by_server is None or not reply.text
    figures = wording.stats(metrics) or ("no tokens" if is_counted else "tokens not told")
    end = _ENDINGS.get(reply.finish_reason) if reply.finish_reason else None
    return f"[{wording.SEPARATOR.join(filter(None, [figures, end]))}]"


def stream_answer(session: Answerer, prompt: Prompt, reply: Reply, *, shown: bool = True) -> None:
    """Generate a reply, printing its text as it comes if shown; the first Ctrl-C stops it.

    Raises:
        ModelError: the engine failed; reply holds what was generated before.
    """
    printed = 0
    with interruptible() as stop, closing(session.stream(prompt, reply, stop.is_set)) as stream:
        for event in stream:
            added = reply.text[printed:]
            if isinstance(event, Prefill):
                stderr.status(f"reading the prompt: {event.done:,} of {event.total:,} tokens")
            elif added and shown:
                printed = len(reply.text)
                stderr.clear_status()
                stdout.write(added)
