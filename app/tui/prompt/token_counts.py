"""Token counts of what is typed, shown before it is sent."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from app.chat.attachment import AttachmentKind
from app.chat.attachments import block, named_files, read_files
from app.printable import one_line
from app.tui.prompt.prompt_text import PromptText
from backends.base import SpecchatError

CountTokens = Callable[[str], Future[int]]

_FEW = 100
"""Tokens below which a text without attachments is not worth a figure."""

_MOST_COUNTED = 2_000_000
"""Characters above which a text is not counted, as that would hold up the model."""

_Count = Future[int] | str
"""A count under way, or why there is none."""


class TokenCounts:
    """Counts each file and paste once, and the typed text after each pause, in the background."""

    def __init__(self, count_tokens: CountTokens) -> None:
        self._count_tokens = count_tokens
        self._written = PromptText()
        self._counts: dict[str, _Count] = {}
        self._typed: Future[int] | None = None

    @property
    def is_counting(self) -> bool:
        """Whether a count is still missing."""
        return any(not count.done() for count in self._all if not isinstance(count, str))

    def update(self, written: PromptText) -> None:
        """Count what is new in a text."""
        if written == self._written:
            return
        self._written = written
        before, self._counts = self._counts, {}
        for path in named_files(written.text) if "@" in written.text else []:
            name = one_line(path.name)
            self._counts[name] = before.get(name) or self._of_file(path)
        for paste in written.attachments:
            if paste.kind is AttachmentKind.PASTE:
                name = paste.name.strip("[]")
                self._counts[name] = before.get(name) or self._of_text(paste.text)
        self._typed = self._count_tokens(written.text) if len(written.text) >= _FEW else None

    def summaries(self, context_size: int | None) -> list[str]:
        """One line about the tokens, in ever shorter versions; empty if there is nothing to say.

        context_size: in tokens, None while no model is loaded.
        """
        if faults := [f"{name}: {why}" for name, why in self._counts.items() if _is_fault(why)]:
            return [f"✕ {', '.join(faults)}"]
        known = [_tokens(count) for count in self._all]
        total = sum(count or 0 for count in known)
        verdict = _verdict(total, context_size)
        if not self._counts:
            if total < _FEW:
                return []
            return [f"{total:,} tokens{verdict}", f"{total:,} tokens"]
        if len(self._counts) == 1:
            name, count = next(iter(self._counts.items()))
            counted = _in_words(count)
        else:
            name, counted = f"{len(self._counts)} attachments", f"{total:,} tokens"
            if None in known:
                counted = "…"
        if not verdict:
            return [f"{name} · {counted}", counted]
        return [f"{name} · {counted}{verdict}", f"{name}{verdict}", verdict.removeprefix(" · ")]

    @property
    def _all(self) -> list[_Count]:
        return [*self._counts.values(), *([self._typed] if self._typed is not None else [])]

    def _of_file(self, path: Path) -> _Count:
        try:
            texts = [block(file) for file in read_files(f'@"{path}"')]
        except SpecchatError as error:
            return error.why or error.what
        return self._of_text("\n".join(texts))

    def _of_text(self, text: str) -> _Count:
        if len(text) > _MOST_COUNTED:
            return _too_long(text)
        return self._count_tokens(text)


_SIZE_UNIT = " MB"


def _too_long(text: str) -> str:
    return f"{len(text) / 1e6:.0f}{_SIZE_UNIT}"


def _is_fault(count: _Count) -> bool:
    return isinstance(count, str) and not count.endswith(_SIZE_UNIT)


def _tokens(count: _Count) -> int | None:
    """A finished count."""
    if isinstance(count, str) or not count.done() or count.cancelled() or count.exception():
        return None
    return count.result()


def _in_words(count: _Count) -> str:
    if isinstance(count, str):
        return count
    tokens = _tokens(count)
    return "…" if tokens is None else f"{tokens:,} tokens"


def _verdict(tokens: int, context_size: int | None) -> str:
    does_not_fit = context_size is not None and tokens >= context_size
    return " · does not fit the context" if does_not_fit else ""
