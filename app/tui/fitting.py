"""Text that has to fit a number of cells."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size


def longest_fitting(versions: Sequence[str], width: int) -> str:
    """The first version that fits; the last one, with an ellipsis, if none does."""
    fitting = (text for text in versions if cell_len(text) <= width)
    return next(fitting, ellipsised(versions[-1], width))


def ellipsised(text: str, width: int) -> str:
    """A text cut to a width in cells, with an ellipsis where it was cut."""
    if cell_len(text) <= width:
        return text
    return f"{set_cell_size(text, width - 1).rstrip()}…" if width > 0 else ""
