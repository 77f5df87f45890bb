"""A passage in its place: the file around it, or the passage alone as it was read."""

import asyncio
from pathlib import Path
from typing import ClassVar

from textual.content import Content
from textual.widgets import Static

from app.chat.sources import Source
from app.documents.document import read
from app.printable import printable
from app.tui.lists import PageScreen
from backends.base import SpecchatError

_AROUND = 40_000
"""Characters of the file that are shown on each side."""

_ABOVE = 3
"""Lines of the file that are in view above the passage."""


def around(text: str, source: Source) -> tuple[str, str] | None:
    """What stands before and after a passage in its file; None if it does not stand there.

    If it stands there more than once, the place counts that is nearest to the one it was read at.
    """
    passage, starts, at = source.text.strip("\n"), list[int](), -1
    while passage and (at := text.find(passage, at + 1)) >= 0:
        starts.append(at)
    if not starts:
        return None

    def distance(start: int) -> int:
        before = text.count("\f" if source.page else "\n", 0, start) + 1
        return abs(before - (source.page or source.line))

    start = min(starts, key=distance)
    return text[:start], text[start + len(passage) :]


class PassageScreen(PageScreen):
    """Shows a passage; file: where it was read, None if nobody knows."""

    DEFAULT_CSS: ClassVar[str] = """
    PassageScreen VerticalScroll > Static { height: auto; color: $text-muted; }
    PassageScreen VerticalScroll > .fault { color: $text-warning; display: none; }
    PassageScreen VerticalScroll > .passage {
        color: $foreground; background: $boost; border-left: outer $primary; padding: 0 0 0 1;
    }
    """

    def __init__(self, source: Source, file: Path | None) -> None:
        self._source, self._file = source, file
        self._before, self._above, self._after = Static(), Static(), Static()
        self._passage = Static(Content(printable(source.text.strip("\n"))), classes="passage")
        self._fault = Static(classes="fault")
        parts = self._fault, self._before, self._above, self._passage, self._after
        super().__init__(f"[{source.number}] {source.place}", *parts)

    def on_mount(self) -> None:
        self.run_worker(self._look(), exit_on_error=False)

    async def _look(self) -> None:
        try:
            text = "" if self._file is None else (await asyncio.to_thread(read, self._file)).text
            fault = "The file has changed since"
        except (SpecchatError, OSError):
            text, fault = "", "The file cannot be read any more"
        found = around(text, self._source)
        if found is None:
            self._fault.display = True
            self._fault.update(f"▲ {fault}; this is the passage as it was read.")
            return
        before, after = found
        lines = before[-_AROUND:].splitlines(keepends=True)
        texts = "".join(lines[:-_ABOVE]), "".join(lines[-_ABOVE:]), after[:_AROUND]
        for part, shown in zip((self._before, self._above, self._after), texts, strict=True):
            part.update(Content(printable(shown.removesuffix("\n").removeprefix("\n"))))
            part.display = bool(shown.strip("\n"))
        top = self._above if self._above.display else self._passage
        self.call_after_refresh(self._scroll.scroll_to_widget, top, animate=False, top=True)
