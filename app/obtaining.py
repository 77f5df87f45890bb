"""Models that are not on this machine are downloaded when they are asked for."""

from collections.abc import Callable

from app.paths import Paths
from backends.base import DownloadError
from models.hub import Downloaded, DownloadJob, DownloadRequest, HubSettings
from models.hub.progress import Progress, describe
from models.metadata.model_facts import ModelFacts, facts_of_entry
from models.reference import HubReference, Reference

Notify = Callable[[str], None]

_TOLD_EVERY_SECONDS = 0.1
_STOPS_WITHIN_SECONDS = 0.5


def obtain(
    reference: Reference | HubReference, paths: Paths, notify: Notify, *, offline: bool
) -> Reference:
    """The model on this machine; notify gets a line on each step of a download.

    What notify raises ends the download; the next one goes on where it stopped.

    Raises:
        DownloadError: it cannot be had.
        UsageError: its repository has no such file.
    """
    if isinstance(reference, Reference):
        return reference
    settings = HubSettings.of_environment(paths.downloads, offline)

    def tell(progress: Progress) -> None:
        notify(f"{reference.name}: {describe(progress)}")

    try:
        done = _downloaded(request_for(reference), settings, tell)
    except DownloadError as error:
        why = f"{error.what}: {error.why}" if error.why else error.what
        what = f"{reference.name} is not on this machine and cannot be downloaded"
        raise type(error)(what, why, error.remedy) from error
    return Reference(reference.name, done.path)


def request_for(reference: HubReference) -> DownloadRequest:
    """What is to be asked of the hub."""
    return DownloadRequest(reference.repository, reference.file or reference.quantization)


def facts_before(reference: Reference | HubReference) -> ModelFacts | None:
    """What the catalogue knows of the size of a model that is not here; None where it does not."""
    if isinstance(reference, Reference) or not (reference.entry and reference.quantization):
        return None
    return facts_of_entry(reference.entry, reference.quantization)


def _downloaded(
    request: DownloadRequest, settings: HubSettings, tell: Callable[[Progress], None]
) -> Downloaded:
    """On a thread of its own: what tell raises ends it even while the hub is silent."""
    job = DownloadJob(request, settings)
    try:
        tell(job.progress)
        while not job.wait(_TOLD_EVERY_SECONDS):
            tell(job.progress)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note("stopped; what came is kept, and the same command goes on from there")
        raise
    finally:
        job.stop()
        job.wait(_STOPS_WITHIN_SECONDS)
    return job.result()
