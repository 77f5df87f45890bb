"""Contexts of heads, which draft beside the context of their model: what those of engines share."""

from collections.abc import Sequence

from backends.base import CacheState, DeviceSampling, Logits, ModelError
from backends.heads.hidden_states import HiddenStates

_LINES = "drafts lines only: the other branches of a tree would need states of their own"


class HeadContext:
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
    state_bytes = saved_state_bytes = exact_batch = 0

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

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        del tokens, parents
        raise AssertionError(_LINES)

    grow_tree = forward_tree

    def commit(self, path: Sequence[int]) -> None:
        del path
        raise AssertionError(_LINES)

    def save(self) -> CacheState:
        raise ModelError("the cache of a head cannot be saved", "it belongs to its model's context")

    def restore(self, tokens: Sequence[int], state: CacheState) -> None:
        del tokens, state
        raise ModelError("a head's cache cannot be restored", "it belongs to its model's context")


class ChainHead(HeadContext):
    """Reads a token and the hidden state of the position before it, and predicts the next token.

    Hidden states are the model's own as far as it has passed; for drafted tokens they are the
    head's. What was computed from the head's is not kept when the text goes on: only lengths whose
    entries come from the model's can be reached. Positions without any state are left out.
    """

    _states: HiddenStates
    _skips_first: bool
    """Whether it has no entry for the first token, before which there is no state."""
    _true: int = 0
    """Leading tokens whose entries come from the model's own states."""

    @property
    def _first_entry(self) -> int:
        """The first position that may have an entry where none has one before."""
        return self._states.first + self._skips_first

    def _passed(self, length: int) -> int:
        """The longest length, up to this one, that the model has passed and states are known of."""
        return min(length, self._true, self._states.end or self._true)

    def _without_states(self, start: int, most: int) -> int:
        """Number of tokens from start on, most at the most, to be left out for lack of a state.

        None behind other entries, as a head cannot leave out positions.
        """
        if self._has_entries_before(start) or self._true < start:
            return 0
        return min(max(self._first_entry - start, 0), most)

    def _has_entries_before(self, start: int) -> bool:
        raise NotImplementedError
