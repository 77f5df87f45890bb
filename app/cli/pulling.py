"""A download as the command line shows it: one line that changes, and Ctrl-C."""

import typer

from app.cli import terminal
from app.cli.interrupt import interruptible
from models.hub import Downloaded, DownloadJob, DownloadRequest, HubSettings, Phase, Progress
from models.size_text import size_text

_SHOWN_EVERY_SECONDS = 0.1
_STOPS_WITHIN_SECONDS = 2.0


def pull_model(request: DownloadRequest, settings: HubSettings) -> Downloaded:
    """Download a model, with its progress on standard error.

    Raises:
        SpecchatError: it failed.
        Exit: it was interrupted; what came is kept.
    """
    with interruptible() as interrupted:
        job = DownloadJob(request, settings)
        while not job.wait(_SHOWN_EVERY_SECONDS) and not interrupted.is_set():
            _show(job.progress)
        job.stop()
        ended = job.wait(_STOPS_WITHIN_SECONDS) if interrupted.is_set() else True
    terminal.clear_status()
    if interrupted.is_set() and not (ended and job.succeeded):
        terminal.note("stopped; what came is kept, and the same command goes on from there")
        raise typer.Exit(terminal.EXIT_INTERRUPTED)
    return job.result()


def _show(progress: Progress) -> None:
    if progress.total_bytes is None or progress.phase is Phase.ASKING:
        terminal.status(f"{progress.phase} …")
    else:
        terminal.progress(progress.done_bytes, progress.total_bytes, describe(progress))


def describe(progress: Progress) -> str:
    """A download in one line: what it does, bytes, rate, and the time that remains."""
    sizes = f"{size_text(progress.done_bytes)} of {size_text(progress.total_bytes or 0)}"
    shown = [f"{progress.phase} {sizes}"]
    if progress.bytes_per_second:
        shown.append(f"{size_text(progress.bytes_per_second)}/s")
    if progress.remaining_seconds is not None:
        shown.append(f"{_duration(progress.remaining_seconds)} left")
    return ", ".join(shown)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
