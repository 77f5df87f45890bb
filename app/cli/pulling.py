"""Downloads with progress on standard error, stopped by Ctrl-C."""

import typer

from app.cli.terminal import stderr
from app.cli.terminal.exit_codes import EXIT_INTERRUPTED
from app.cli.terminal.interrupt import interruptible
from app.loading.fetch_model import stopped
from models.hub import Downloaded, DownloadJob, DownloadRequest, HubSettings
from models.hub.progress import describe

_SHOWN_EVERY_SECONDS = 0.1
_STOPS_WITHIN_SECONDS = 0.5


def pull_model(request: DownloadRequest, settings: HubSettings) -> Downloaded:
    """Download a model.

    Raises:
        SpecchatError: the download failed.
        Exit: it was interrupted.
    """
    with interruptible() as interrupted:
        job = DownloadJob(request, settings)
        while not job.wait(_SHOWN_EVERY_SECONDS) and not interrupted.is_set():
            stderr.status(describe(job.progress))
        job.stop()
        ended = job.wait(_STOPS_WITHIN_SECONDS) if interrupted.is_set() else True
    stderr.clear_status()
    if interrupted.is_set() and not (ended and job.succeeded):
        stderr.note(stopped(job))
        raise typer.Exit(EXIT_INTERRUPTED)
    return job.result()
