"""Downloads in progress, one line each."""

from collections.abc import Callable
from typing import ClassVar

from app.loading.downloads import Downloads, Ended
from app.printable import one_line
from app.tui.status.figure_text import FigureText
from models.hub import HubSettings
from models.reference import HubReference

_UPDATE_SECONDS = 1 / 12


class DownloadList(FigureText):
    """Runs downloads in the background and shows their progress; hidden while there are none."""

    DEFAULT_CSS: ClassVar[str] = """
    DownloadList { height: auto; max-height: 4; padding: 0 1; display: none; }
    """

    def __init__(self) -> None:
        super().__init__(id="downloads")
        self._downloads = Downloads()

    def on_mount(self) -> None:
        self.set_interval(_UPDATE_SECONDS, self._update)

    def on_unmount(self) -> None:
        self._downloads.stop_all()

    @property
    def progress(self) -> dict[str, str]:
        """The progress of each download, by name."""
        return self._downloads.lines

    def start(
        self, reference: HubReference, settings: HubSettings, on_done: Callable[[], None]
    ) -> None:
        """Start or resume a download; on_done is called once the model is installed."""
        self._downloads.start(reference, settings, on_done)
        self.notify(f"Downloading {reference.name} in the background.")

    def stop(self, name: str) -> bool:
        """Stop a download, keeping what has arrived; False if there is none of that name."""
        return self._downloads.stop(name)

    def _update(self) -> None:
        for ended in self._downloads.take_ended():
            self._finish(ended)
        text = "\n".join(one_line(f"{name}: {line}") for name, line in self.progress.items())
        self.display = bool(text)
        if text:
            self.write(text)

    def _finish(self, ended: Ended) -> None:
        if ended.error is None:
            ended.then()
        elif ended.error:
            self.notify(ended.error, severity="error", timeout=10)
        else:
            self.notify(f"Download of {ended.name} stopped; the part that has arrived is kept.")
