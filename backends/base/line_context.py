"""What contexts share that run lines alone: heads', and that of a model on another machine."""

from collections.abc import Sequence

from backends.base.errors import ModelError
from backends.base.model import CacheState, Logits


class LineContext:
    """Tokens, of which any number can be taken back, and what such contexts cannot do, with why.

    not_copied: why its cache is neither saved nor restored.
    """

    n_ctx: int
    tokens: list[int]
    can_verify_tree = stops_passes = False
    max_branches = 1
    exact_batch = state_bytes = saved_state_bytes = 0
    draft_refusal = ""
    tree_refusal: str
    not_copied: str

    @property
    def length(self) -> int:
        return len(self.tokens)

    def rollback_to(self, length: int) -> int:
        return min(length, len(self.tokens))

    def checkpoint(self, *, is_brief: bool = False) -> None:
        """Nothing to do: what can be reached stays so."""

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        del tokens, parents
        raise AssertionError(self.tree_refusal)

    grow_tree = forward_tree

    def commit(self, path: Sequence[int]) -> None:
        del path
        raise AssertionError(self.tree_refusal)

    def save(self) -> CacheState:
        raise ModelError("the cache cannot be saved", self.not_copied)

    def restore(self, tokens: Sequence[int], state: CacheState) -> None:
        del tokens, state
        raise ModelError("no cache can be restored", self.not_copied)
