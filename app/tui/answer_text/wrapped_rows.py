"""Rows of lines that wrap each on its own, once for a width."""

from collections.abc import Callable, Iterable, Sequence

from rich.cells import cell_len

from app.tui.answer_text.line_block import Row


class WrappedRows:
    """Rows of the lines of a text that grows.

    wrap: makes the rows of a line, given its number and the width in cells.
    """

    def __init__(self, wrap: Callable[[int, int], Iterable[Row]]) -> None:
        self._wrap = wrap
        self._width = 0
        self._rows: list[Row] = []
        self._ends: list[int] = []
        """How many rows there are up to the end of each line."""

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, lines: int, width: int) -> Sequence[Row]:
        """Rows of a number of lines."""
        if width != self._width:
            self._width = width
            self.forget(0)
        for number in range(len(self._ends), lines):
            self._rows += self._wrap(number, width)
            self._ends.append(len(self._rows))
        return self._rows

    def forget(self, line: int) -> None:
        """Forget the rows from a line on."""
        del self._ends[line:]
        del self._rows[self._ends[-1] if self._ends else 0 :]


def end_of_row(line: str, start: int, width: int) -> int:
    """Where a row that begins at start ends: after a space if there is one, else anywhere."""
    end = start + max(1, width)
    if end >= len(line) and line.isascii():
        return len(line)
    while end > start + 1 and cell_len(line[start:end]) > width:
        end -= 1
    if end >= len(line):
        return len(line)
    indented = len(line) - len(line.lstrip())
    space = line.rfind(" ", max(start, indented) + 1, end + 1)
    return end if space < 0 else space + 1
