"""A download as the command line shows it: one line that changes, and Ctrl-C."""

import typer

from app.cli import terminal
from app.cli.interrupt import interruptible
from models.hub import Downloaded, DownloadJob, DownloadRequest, HubSettings, Progress
from models.size_text import size_text

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
            terminal.status(describe(job.progress))
        job.stop()
        ended = job.wait(_STOPS_WITHIN_SECONDS) if interrupted.is_set() else True
    terminal.clear_status()
    if interrupted.is_set() and not (ended and job.succeeded):
        terminal.note("stopped; what came is kept, and the same command goes on from there")
        raise typer.Exit(terminal.EXIT_INTERRUPTED)
    return job.result()


def describe(progress: Progress) -> str:
    """A download in one line that fits a terminal: phase, share, bytes, rate, remaining time."""
    done, total = progress.done_bytes, progress.total_bytes
    if total is None:
        return f"{progress.phase} …"
    share = f"{100 * done // max(total, 1):3d} %"
    shown = [f"{progress.phase} {share}  {size_text(done)} of {size_text(total)}"]
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
