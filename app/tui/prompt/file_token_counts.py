"""Token counts of the files named in the prompt, shown before it is sent."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from app.chat.attachments import block, missing_files, named_files
from backends.base import SpecchatError

CountTokens = Callable[[str], Future[int]]


class FileTokenCounts:
    """Counts each named file once, in the background."""

    def __init__(self, count_tokens: CountTokens) -> None:
        self._count_tokens = count_tokens
        self._text = ""
        self._counts: dict[Path, Future[int] | str] = {}
        self._missing: list[str] = []

    def summary(self, text: str, context_size: int | None = None) -> str:
        """One line about the files a text names; call it again until all are counted.

        context_size: in tokens, None while no model is loaded.
        """
        if text != self._text:
            self._text = text
            files = named_files(text) if "@" in text else []
            self._counts = {path: self._counts.get(path) or self._start(path) for path in files}
            self._missing = [f"{name}: file not found" for name in missing_files(text)]
        counted = [
            f"{path.name} {_in_words(count, context_size)}" for path, count in self._counts.items()
        ]
        return " · ".join([*counted, *self._missing])

    def _start(self, path: Path) -> Future[int] | str:
        try:
            return self._count_tokens(block(path))
        except SpecchatError as error:
            return error.why or error.what


def _in_words(count: Future[int] | str, context_size: int | None) -> str:
    if isinstance(count, str):
        return f"cannot be added: {count}"
    if not count.done():
        return "…"
    tokens = f"{count.result():,} tokens"
    if context_size is not None and count.result() >= context_size:
        return f"{tokens}, more than the context of {context_size:,}"
    return tokens
