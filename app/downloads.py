"""Downloads that go on while the user does something else."""

from collections.abc import Callable
from dataclasses import dataclass

from app.obtaining import request_for
from backends.base import DownloadStoppedError, SpecchatError
from models.hub import DownloadJob, HubSettings
from models.hub.progress import describe
from models.reference import HubReference


@dataclass(frozen=True, slots=True)
class Ended:
    """A download that is over. error is None where the model is here, "" where it was stopped."""

    name: str
    error: str | None
    then: Callable[[], None]
    """What was to be done with the model."""


@dataclass(frozen=True, slots=True)
class _Running:
    job: DownloadJob
    then: Callable[[], None]


class Downloads:
    """At most one for each model; each runs on a thread of its own."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}

    def start(
        self, reference: HubReference, settings: HubSettings, then: Callable[[], None]
    ) -> None:
        """Begin or resume one."""
        if reference.name not in self._running:
            job = DownloadJob(request_for(reference), settings)
            self._running[reference.name] = _Running(job, then)

    def stop(self, name: str) -> bool:
        """Stop one, keeping what came; False where there is none of this name."""
        running = self._running.get(name)
        if running is not None:
            running.job.stop()
        return running is not None

    def stop_all(self) -> None:
        """Stop every one: the program ends."""
        for name in self._running:
            self.stop(name)

    @property
    def lines(self) -> dict[str, str]:
        """How far each is, by name."""
        return {name: describe(one.job.progress) for name, one in self._running.items()}

    def take_ended(self) -> list[Ended]:
        """Those that ended since the last call."""
        over = [name for name, one in self._running.items() if not one.job.running]
        return [_ended(name, self._running.pop(name)) for name in over]


def _ended(name: str, running: _Running) -> Ended:
    try:
        running.job.result()
    except DownloadStoppedError:
        return Ended(name, "", running.then)
    except SpecchatError as error:
        return Ended(name, str(error), running.then)
    return Ended(name, None, running.then)
