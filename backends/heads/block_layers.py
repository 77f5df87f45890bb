"""The layers of a head that drafts blocks, as its context runs them."""

from collections.abc import Sequence
from typing import Protocol

from backends.base import Block
from backends.base.hidden_states import Rows


class BlockLayers(Protocol):
    """Entries of positions, made from what a model left there, and passes over a block after them.

    All raise ModelError if the engine fails.
    """

    def inject(self, start: int, rows: Rows) -> None:
        """Make entries from states of the model at positions from start on, (positions, width)."""
        ...

    def remove(self, length: int) -> None:
        """Remove the entries of positions from length on."""
        ...

    def draft(self, start: int, known: Sequence[int], count: int) -> Block:
        """Rows of count tokens after the known ones, of which the first is at position start.

        Nothing of the pass is kept. known: the text's last token, and drafted ones after it.
        """
        ...

    def close(self) -> None:
        """Free the entries."""
        ...
