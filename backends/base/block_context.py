"""Contract of a context that drafts several tokens in one pass."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from backends.base.model import Context, Logits

Block = Callable[[Sequence[int]], "Logits | None"]
"""The logits after the context and the tokens of a draft so far, shape (n_vocab,).

None after tokens that the pass did not reckon with, and where the block ends. A row is a function
of the text before it, so that it is the q_draft of a token sampled from it. Rows are views that the
next call of the context overwrites.
"""


@runtime_checkable
class BlockContext(Context, Protocol):
    """A context whose passes draft blocks of tokens at once."""

    @property
    def longest(self) -> int:
        """Most tokens of a block."""
        ...

    def draft(self, count: int) -> Block:
        """Run one pass over the last token and count tokens to follow it, which are not kept.

        Raises:
            ModelError: the engine failed; the context is unchanged.
        """
        ...
