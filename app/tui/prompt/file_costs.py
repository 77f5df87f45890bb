"""What the files named in the prompt will cost in tokens, told before they are sent."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from app.attachments import block, missing_files, named_files
from backends.base import SpecchatError

Count = Callable[[str], Future[int]]


class FileCosts:
    """Counts each file once; count is the engine's, whose answers come later."""

    def __init__(self, count: Count) -> None:
        self._count = count
        self._text = ""
        self._counts: dict[Path, Future[int] | str] = {}
        self._missing: list[str] = []

    def line(self, text: str, context_size: int | None = None) -> str:
        """One line on the files a text names; call it on a timer.

        context_size: in tokens, where it is known.
        """
        if text != self._text:
            self._text = text
            files = named_files(text) if "@" in text else []
            self._counts = {path: self._counts.get(path) or self._begin(path) for path in files}
            self._missing = [f"{name}: there is no such file" for name in missing_files(text)]
        told = [f"{path.name} {_said(one, context_size)}" for path, one in self._counts.items()]
        return " · ".join([*told, *self._missing])

    def _begin(self, path: Path) -> Future[int] | str:
        try:
            return self._count(block(path))
        except SpecchatError as error:
            return error.why or error.what


def _said(count: Future[int] | str, context_size: int | None) -> str:
    if isinstance(count, str):
        return f"cannot be added: {count}"
    if not count.done():
        return "…"
    tokens = f"{count.result():,} tokens"
    if context_size is not None and count.result() >= context_size:
        return f"{tokens}, more than the context of {context_size:,}"
    return tokens
