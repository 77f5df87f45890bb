"""What the files named in the prompt will cost in tokens, told before they are sent."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from app.attachments import block, named_files
from backends.base import SpecchatError

Count = Callable[[str], Future[int]]


class FileCosts:
    """Counts each file once; count is the engine's, whose answers come later."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._text = ""
        self._counts: dict[Path, Future[int] | str] = {}

    def line(self, text: str) -> str:
        """One line on the files a text names; call it on a timer."""
        if text != self._text:
            self._text = text
            files = named_files(text) if "@" in text else []
            self._counts = {path: self._counts.get(path) or self._begin(path) for path in files}
        return " · ".join(f"{path.name} {_said(count)}" for path, count in self._counts.items())

    def _begin(self, path: Path) -> Future[int] | str:
        try:
            return self._count(block(path))
        except SpecchatError as error:
            return error.why or error.what


def _said(count: Future[int] | str) -> str:
    if isinstance(count, str):
        return f"cannot be added: {count}"
    return f"{count.result():,} tokens" if count.done() else "…"
