"""A small histogram of block characters, each column with its numbers."""

from collections.abc import Sequence

from app.percentage import percentage

_LEVELS = "▁▂▃▄▅▆▇█"
_COLUMNS = 8
_WIDTH = 4


def histogram(counts: Sequence[int]) -> list[str]:
    """Rows of what is counted from 0 up, a block as high as its share, and the share in per cent.

    The last of 8 columns stands for all that is more. counts: one at least is not 0.
    """
    columns = [*counts[: _COLUMNS - 1]]
    names = [str(place) for place in range(len(columns))]
    if len(counts) >= _COLUMNS:
        columns.append(sum(counts[_COLUMNS - 1 :]))
        names.append(f"{_COLUMNS - 1}+" if len(counts) > _COLUMNS else str(_COLUMNS - 1))
    blocks = [_block(count, max(columns)) for count in columns]
    shares = [percentage(count, sum(columns)) for count in columns]
    return ["".join(cell.rjust(_WIDTH) for cell in row).rstrip() for row in (names, blocks, shares)]


def _block(count: int, most: int) -> str:
    """Only nothing is blank."""
    return _LEVELS[-(-count * len(_LEVELS) // most) - 1] if count else ""
