"""Base of contexts of heads, which draft beside the context of their model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backends.base.device_sampling import DeviceSampling
from backends.base.errors import ModelError

if TYPE_CHECKING:
    from backends.base.model import CacheState, Logits

_LINES = "drafts lines only: the other branches of a tree would need states of their own"


class HeadLimits:
    """Tokens of a head's context and room for more, and what such contexts cannot do.

    That is sampling on a device, saved states, and trees for most. Their passes are too short to be
    stopped.
    """

    n_ctx: int
    tokens: list[int]
    device_sampling: DeviceSampling | None = None
    can_roll_back = can_verify_tree = stops_passes = False
    max_branches = 1
    draft_refusal = ""
    tree_refusal = _LINES
    state_bytes = saved_state_bytes = block = 0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def _check_room(self, count: int) -> None:
        """Refuse tokens that do not fit after those held.

        Raises:
            ModelError: there are more of them than places left.
        """
        if self.length + count > self.n_ctx:
            what = f"{count} tokens do not fit after {self.length:,}"
            raise ModelError(what, "the context is full")

    def checkpoint(self, *, is_brief: bool = False) -> None:
        """Nothing to do: what can be reached stays so."""

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> "Logits":
        del tokens, parents
        raise AssertionError(_LINES)

    grow_tree = forward_tree

    def commit(self, path: Sequence[int]) -> None:
        del path
        raise AssertionError(_LINES)

    def save(self) -> "CacheState":
        raise ModelError("the cache of a head cannot be saved", "it belongs to its model's context")

    def restore(self, tokens: Sequence[int], state: "CacheState") -> None:
        del tokens, state
        raise ModelError("a head's cache cannot be restored", "it belongs to its model's context")
