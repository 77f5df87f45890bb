"""`specchat batch`: answers a file of requests."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from app.cli import option_values, options
from app.cli.commands.serve import SWITCH_SECONDS, loaded_by
from app.cli.output import writable
from app.cli.terminal import process, stderr
from app.cli.terminal.interrupt import deferred
from app.cli.terminal.process import EXIT_ERROR, EXIT_INTERRUPTED
from app.engine.engine import Engine
from app.paths import Paths
from app.settings.answering import Answering
from app.settings.in_effect import settings_in_effect
from app.wording import counted

_STOP_SECONDS, _CLOSE_SECONDS = 0.8, 60.0
_LOOK_SECONDS = 0.1


@options.with_options(*options.SESSION, options.PARALLEL_IN_BATCH)
def batch(
    context: typer.Context,
    asked: Annotated[
        Path,
        typer.Argument(
            metavar="IN.jsonl", help="Requests, one a line.", exists=True, dir_okay=False
        ),
    ],
    answers: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="Where answers go.")],
) -> None:
    """Answer a file of requests in OpenAI's batch form; the same command resumes it.

    Urls are /v1/chat/completions, /v1/completions and /v1/responses. Exits with 1 if a request
    could not be answered.
    """
    session_options = option_values.own_options(context)
    writable(answers)
    paths = Paths.of_this_user()
    engine = Engine(session_options, paths)
    sys.setswitchinterval(SWITCH_SECONDS)
    failed = 0
    with deferred() as stop:
        try:
            engine.start()
            if loaded_by(engine, stop) is not None:
                failed = asyncio.run(_run(engine, asked, answers, stop))
        finally:
            stderr.clear_status()
            is_closed = engine.close(_STOP_SECONDS if stop.is_set() else _CLOSE_SECONDS)
        if stop.is_set() and not is_closed:  # a pass that takes longer would delay the end
            process.leave(EXIT_INTERRUPTED)
    if failed:
        raise typer.Exit(EXIT_ERROR)


async def _run(engine: Engine, asked: Path, answers: Path, stop: Event) -> int:
    """Answer the requests until all are or the user interrupts it; returns how many failed."""
    from app.serve.batch import answer_batch
    from app.serve.served_engine import ServedEngine
    from app.serve.server_options import Limits

    def tell(done: int, total: int, left: float) -> None:
        ends = f"{timedelta(seconds=round(left))} left"
        stderr.progress(done, total, f"{done:,} of {counted(total, 'request')}, {ends}")

    defaults = Answering.of(settings_in_effect(engine.paths).values)
    served = ServedEngine(engine, Limits())
    work = asyncio.ensure_future(answer_batch(asked, answers, served, defaults, tell))
    while not work.done() and not stop.is_set():
        await asyncio.wait({work}, timeout=_LOOK_SECONDS)
    if not work.done():
        work.cancel()
        await asyncio.wait({work})
        stderr.note("stopped; the same command goes on with the rest")
        return 0
    done, failed = work.result()
    stderr.note(f"{counted(done, 'request')}, {failed:,} failed: {answers}")
    return failed
