"""A download on a thread of its own, independent of its display."""

from collections.abc import Generator
from contextlib import closing
from threading import Event, Thread

from backends.base import DownloadError, DownloadStoppedError, SpecchatError
from models.hub.download import Downloaded, DownloadRequest, download
from models.hub.hub_settings import HubSettings
from models.hub.progress import Phase, Progress


class DownloadJob:
    """A running or finished download. Thread-safe.

    To resume a stopped or failed one, start another with the same request.
    """

    def __init__(self, request: DownloadRequest, settings: HubSettings) -> None:
        self.request = request
        self.progress = Progress(Phase.ASKING)
        """Latest progress."""
        self._settings = settings
        self._stop = Event()
        self._ended = Event()
        self._outcome: Downloaded | SpecchatError = DownloadStoppedError(
            f"the download of {request.repository} was stopped",
            "the downloaded part is kept",
            "Ask for it again to resume it.",
        )
        Thread(target=self._run, name=f"download {request.repository}", daemon=True).start()

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return not self._ended.is_set()

    @property
    def succeeded(self) -> bool:
        """Whether it has ended with the model downloaded."""
        return not self.running and isinstance(self._outcome, Downloaded)

    def stop(self) -> None:
        """Stop with the next bytes, or when a silent connection times out."""
        self._stop.set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the end, at most so many seconds; whether it has ended."""
        return self._ended.wait(seconds)

    def result(self) -> Downloaded:
        """Wait for the end and return the downloaded model.

        Raises:
            DownloadStoppedError: it was stopped.
            SpecchatError: it failed, as for download.
        """
        self._ended.wait()
        if isinstance(self._outcome, SpecchatError):
            raise self._outcome
        return self._outcome

    def _run(self) -> None:
        try:
            with closing(self._steps()) as steps:
                for self.progress in steps:
                    if self._stop.is_set():
                        break
        except SpecchatError as error:
            self._outcome = error
        except Exception as error:
            self._outcome = DownloadError(
                f"the download of {self.request.repository} failed",
                f"{type(error).__name__}: {error}",
            )
        finally:
            self._ended.set()

    def _steps(self) -> Generator[Progress, None, None]:
        self._outcome = yield from download(self.request, self._settings)
