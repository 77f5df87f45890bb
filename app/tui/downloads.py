"""The models to choose from, those that are being downloaded, and the drafter in training."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from app.engine.engine import Engine
from app.tui.store import Store
from backends.base import DownloadStoppedError, SpecchatError

if TYPE_CHECKING:
    from app.loading.model_list import ModelList
    from models.hub import HubSettings
    from models.hub.progress import Progress
    from models.reference import HubReference


class Job(Protocol):
    """A download, or a training. result: raises DownloadStoppedError where it was stopped."""

    @property
    def running(self) -> bool: ...

    @property
    def progress(self) -> "Progress | str": ...

    def stop(self) -> None: ...

    def result(self) -> object: ...


class Downloads:
    """At most one download per model, each on its own thread, and trainings, as processes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._running: dict[str, tuple[Job, Callable[[], object]]] = {}
        """Each with what to do with the model once it is installed."""

    def start(
        self, reference: "HubReference", settings: "HubSettings", then: Callable[[], object]
    ) -> None:
        from app.loading.select import request_for
        from models.hub import DownloadJob

        if reference.name not in self._running:
            self.run(reference.name, DownloadJob(request_for(reference), settings), then)

    def run(self, name: str, job: Job, then: Callable[[], object]) -> None:
        """Show a job as it goes on; then: once it has succeeded."""
        self._running[name] = job, then
        self._publish()

    def stop(self, name: str) -> bool:
        """Stop a download and keep its partial files; False if there is none of this name."""
        running = self._running.get(name)
        if running is not None:
            running[0].stop()
        return running is not None

    def stop_all(self) -> None:
        for name in self._running:
            self.stop(name)

    def update(self) -> list[tuple[str, SpecchatError]]:
        """Publish the progress, use what is installed, and return what failed, by name."""
        if not self._running:
            return []
        names = [name for name, (job, _) in self._running.items() if not job.running]
        ended = {name: self._running.pop(name) for name in names}
        self._publish()
        faults: list[tuple[str, SpecchatError]] = []
        for name, (job, then) in ended.items():
            try:
                job.result()
                then()
            except DownloadStoppedError:
                pass
            except SpecchatError as error:
                faults.append((name, error))
        return faults

    def _publish(self) -> None:
        self._store.downloads = {
            name: progress_words(job.progress) for name, (job, _) in self._running.items()
        }


def progress_words(progress: "Progress | str") -> str:
    """Progress in a few words, such as "34 %, 2 min left"."""
    if isinstance(progress, str):
        return progress
    done, total = progress.done_bytes, progress.total_bytes
    if total is None:
        return f"{progress.phase}…"
    share = f"{100 * done // max(total, 1)} %"
    left = progress.remaining_seconds
    return f"{share}, {time_left(left)} left" if left is not None else f"{share}, {progress.phase}"


def time_left(seconds: float) -> str:
    """A time in minutes, or in tens of seconds below one: finer would be a guess."""
    if seconds < 55:
        return f"{10 * max(1, math.ceil(seconds / 10))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{round(minutes / 60)} h"


def models_here(engine: Engine) -> "ModelList":
    """List models with measured or expected speed; reads files, so it is for a thread."""
    from app.drafting.choose.memory_choice import expected_streaming_rate
    from app.learned.speeds import rate_beside
    from app.loading.model_list import ListedModel, Speed, list_models
    from models.metadata.memory_bill import Fit

    loaded = engine.status.loaded
    if loaded is None:
        return list_models(engine.paths.models)
    info, reach = loaded.info, loaded.reach

    def speed(model: ListedModel, free: int) -> Speed | None:
        path, streams = model.path, model.fit is Fit.STREAMS
        measured = None
        if path == info.path:
            measured = loaded.plain_rate
        elif path and not streams:
            measured = rate_beside(path, info, engine.paths)
        if measured:
            return Speed(measured, is_measured=True)
        rate = reach.rate(model.read_bytes) if reach else None
        if streams and path:
            memory = loaded.bandwidth
            rate = memory and expected_streaming_rate(path, free, memory, engine.paths)
        return Speed(rate, is_measured=False) if rate else None

    held = info.locked_bytes if info.streamed_bytes_per_token else info.weight_bytes
    return list_models(engine.paths.models, speed, loaded.name, held)
