"""What a calibration times of a context that drafts blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from backends.base import BlockContext


@dataclass(frozen=True, slots=True)
class BlockPasses:
    """Blocks of so many tokens after reading one; if reads, blocks of one after reading so many.

    Only a block shows what reading before it takes, as engines may go on meanwhile.
    """

    context: BlockContext
    reads: bool = False

    @property
    def n_ctx(self) -> int:
        return self.context.n_ctx

    @property
    def n_chunk(self) -> int:
        return self.context.n_chunk

    @property
    def depth(self) -> int:
        return self.context.depth

    @property
    def length(self) -> int:
        return self.context.length

    @property
    def max_logits(self) -> int:
        """Longest pass of the kind that is timed."""
        return self.n_chunk if self.reads else self.context.longest

    def forward(self, tokens: Sequence[int], n_logits: int) -> object:
        """Read one token, or all of these, and draft."""
        self.context.forward(tokens if self.reads else tokens[:1], 0)
        return self.context.draft(1 if self.reads else n_logits)

    def truncate(self, length: int) -> None:
        self.context.truncate(length)

    def checkpoint(self, *, is_brief: bool = False) -> None:
        self.context.checkpoint(is_brief=is_brief)
