"""Downloads models that are needed and not on this machine."""

from collections.abc import Callable

from app.paths import Paths
from backends.base import DownloadError
from models.hub import Downloaded, DownloadJob, DownloadRequest, HubSettings
from models.hub.progress import Phase, Progress, describe
from models.metadata.model_facts import ModelFacts, facts_of_entry
from models.reference import HubReference, Reference

Notify = Callable[[str], None]

_REPORT_SECONDS = 0.1
_STOP_SECONDS = 0.5


def fetch_model(
    reference: Reference | HubReference, paths: Paths, notify: Notify, *, offline: bool
) -> Reference:
    """Return the installed model, downloading it first if needed.

    notify: receives a line of progress several times a second; an exception it raises stops the
    download, which the next one resumes.

    Raises:
        DownloadError: the download failed.
        UsageError: the repository has no such file.
    """
    if isinstance(reference, Reference):
        return reference
    settings = HubSettings.of_environment(paths.downloads, offline)

    def report(progress: Progress) -> None:
        notify(f"{reference.name}: {describe(progress)}")

    try:
        done = _downloaded(request_for(reference), settings, report)
    except DownloadError as error:
        # Offline, it is no news that the repository is not here.
        why = (settings.offline and error.why) or error.summary
        what = f"{reference.name} is not on this machine and cannot be downloaded"
        raise type(error)(what, why, error.remedy) from error
    return Reference(reference.name, done.path)


def stopped(job: DownloadJob) -> str:
    """How a stopped download continues."""
    if job.progress.phase is Phase.ASKING:
        return "stopped before the download began"
    return "stopped; the downloaded part is kept, and the same command resumes it"


def request_for(reference: HubReference) -> DownloadRequest:
    """The request that downloads a model."""
    return DownloadRequest(reference.repository, reference.file or reference.quantization)


def facts_before(reference: Reference | HubReference) -> ModelFacts | None:
    """Figures of the catalogue on a model before its download, if it has any."""
    if isinstance(reference, Reference) or not (reference.entry and reference.quantization):
        return None
    return facts_of_entry(reference.entry, reference.quantization)


def _downloaded(
    request: DownloadRequest, settings: HubSettings, report: Callable[[Progress], None]
) -> Downloaded:
    """Download on another thread, so that an exception of report stops it at any time."""
    job = DownloadJob(request, settings)
    try:
        report(job.progress)
        while not job.wait(_REPORT_SECONDS):
            report(job.progress)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(stopped(job))
        raise
    finally:
        job.stop()
        job.wait(_STOP_SECONDS)
    return job.result()
