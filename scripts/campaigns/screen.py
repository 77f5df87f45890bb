"""What a terminal shows: a grid of characters, written as Textual writes it."""

import re

_STEP = re.compile(
    r"\x1b\[(?P<at>[0-9;]*)H|(?P<text>[^\x00-\x1f\x7f]+)"
    r"|\x1b(?:\[[0-9;?<>=]*[ -/]*[@-~]|[PX^_\]].*?(?:\x1b\\|\x07)|[@-Z\\-_])|.",
    re.DOTALL,
)

SYNCHRONISES = "\x1b[?2026;2$y"
"""What a terminal answers that shows whole pictures alone: each then ends in PICTURE_END."""

PICTURE_END = b"\x1b[?2026l"


class Screen:
    """The characters of a terminal; every one takes one cell."""

    def __init__(self, columns: int, rows: int) -> None:
        self._cells = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0
        self._begun = b""
        """A picture whose end has not come yet."""

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    def write(self, written: bytes) -> None:
        """Take over what a program wrote, up to the end of the last whole picture."""
        whole, _, self._begun = (self._begun + written).rpartition(PICTURE_END)
        for step in _STEP.finditer(whole.decode(errors="replace")):
            if step["text"]:
                self._put(step["text"])
            elif step["at"] is not None:
                row, _, column = step["at"].partition(";")
                self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
            elif step[0] == "\r":
                self._column = 0
            elif step[0] == "\n":
                self._row += 1

    def _put(self, text: str) -> None:
        if self._row < len(self._cells):
            row = self._cells[self._row]
            place = self._column
            row[place : place + len(text)] = text[: max(0, len(row) - place)]
        self._column += len(text)
