"""A download as the command line shows it: one line that changes, and Ctrl-C."""

import typer

from app.cli.terminal import stderr
from app.cli.terminal.exit_codes import EXIT_INTERRUPTED
from app.cli.terminal.interrupt import interruptible
from models.hub import Downloaded, DownloadJob, DownloadRequest, HubSettings
from models.hub.progress import describe

_SHOWN_EVERY_SECONDS = 0.1
_STOPS_WITHIN_SECONDS = 0.5


def pull_model(request: DownloadRequest, settings: HubSettings) -> Downloaded:
    """Download a model, with its progress on standard error.

    Raises:
        SpecchatError: it failed.
        Exit: it was interrupted; what came is kept.
    """
    with interruptible() as interrupted:
        job = DownloadJob(request, settings)
        while not job.wait(_SHOWN_EVERY_SECONDS) and not interrupted.is_set():
            stderr.status(describe(job.progress))
        job.stop()
        ended = job.wait(_STOPS_WITHIN_SECONDS) if interrupted.is_set() else True
    stderr.clear_status()
    if interrupted.is_set() and not (ended and job.succeeded):
        stderr.note("stopped; what came is kept, and the same command goes on from there")
        raise typer.Exit(EXIT_INTERRUPTED)
    return job.result()
