"""Downloads in the background of the app."""

from collections.abc import Callable
from dataclasses import dataclass

from app.loading.fetch_model import request_for
from backends.base import DownloadStoppedError, SpecchatError
from models.hub import DownloadJob, HubSettings
from models.hub.progress import describe
from models.reference import HubReference


@dataclass(frozen=True, slots=True)
class Ended:
    """A download that has ended. error: None if it succeeded, "" if it was stopped."""

    name: str
    error: str | None
    then: Callable[[], None]
    """Called by the app once the model is installed."""


@dataclass(frozen=True, slots=True)
class _Running:
    job: DownloadJob
    then: Callable[[], None]


class Downloads:
    """At most one download per model, each on its own thread."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}

    def start(
        self, reference: HubReference, settings: HubSettings, then: Callable[[], None]
    ) -> None:
        """Begin or resume a download."""
        if reference.name not in self._running:
            job = DownloadJob(request_for(reference), settings)
            self._running[reference.name] = _Running(job, then)

    def stop(self, name: str) -> bool:
        """Stop a download and keep its partial files; False if there is none of this name."""
        running = self._running.get(name)
        if running is not None:
            running.job.stop()
        return running is not None

    def stop_all(self) -> None:
        """Stop all downloads."""
        for name in self._running:
            self.stop(name)

    @property
    def lines(self) -> dict[str, str]:
        """Progress of each download, by model name."""
        return {name: describe(running.job.progress) for name, running in self._running.items()}

    def take_ended(self) -> list[Ended]:
        """Return and forget the downloads that have ended."""
        ended = [name for name, running in self._running.items() if not running.job.running]
        return [_ended(name, self._running.pop(name)) for name in ended]


def _ended(name: str, running: _Running) -> Ended:
    try:
        running.job.result()
    except DownloadStoppedError:
        return Ended(name, "", running.then)
    except SpecchatError as error:
        return Ended(name, str(error), running.then)
    return Ended(name, None, running.then)
