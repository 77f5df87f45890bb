"""A small histogram of block characters with labelled columns."""

from collections.abc import Sequence

from app.percentage import percentage

_LEVELS = "▁▂▃▄▅▆▇█"
_COLUMNS = 8
_WIDTH = 4


def histogram(counts: Sequence[int]) -> list[str]:
    """Rows of column labels, blocks and per cent for a list of counts, the first of 0.

    The last of 8 columns is the sum of all further counts. At least one count is positive.
    """
    columns = [*counts[: _COLUMNS - 1]]
    labels = [str(value) for value in range(len(columns))]
    if len(counts) >= _COLUMNS:
        columns.append(sum(counts[_COLUMNS - 1 :]))
        labels.append(f"{_COLUMNS - 1}+" if len(counts) > _COLUMNS else str(_COLUMNS - 1))
    blocks = [_block(count, max(columns)) for count in columns]
    shares = [percentage(count, sum(columns)) for count in columns]
    return [
        "".join(cell.rjust(_WIDTH) for cell in row).rstrip() for row in (labels, blocks, shares)
    ]


def _block(count: int, most: int) -> str:
    """A block of at least the lowest level; blank for 0."""
    return _LEVELS[-(-count * len(_LEVELS) // most) - 1] if count else ""
