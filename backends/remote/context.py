"""Context of a model on another machine: its tokens are known here, its logits are not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.base import (
    CacheState,
    DeviceRow,
    Drawn,
    Listener,
    Logits,
    ModelError,
    Warping,
    check_room,
    check_truncation,
)
from backends.remote.verifying_server import (
    LostError,
    Opened,
    Passed,
    VerifyingServer,
    reaching,
)

_NO_ROWS = "has its logits on another machine"
_NO_TREES = "is on another machine, where lines alone are verified"


@dataclass(frozen=True, slots=True)
class Place:
    """A model on a server, by its identity there."""

    server: VerifyingServer
    model: str
    n_vocab: int


class RemoteContext:
    """Tokens that a server's context holds as far as it is told: with the next pass.

    Where the server has lost them, they are sent again.
    """

    stops_passes = can_verify_tree = False
    exact_batch = kv_bytes_per_token = state_bytes = saved_state_bytes = 0
    max_branches = 1
    can_roll_back = True
    tree_refusal = _NO_TREES
    draft_refusal = ""

    def __init__(self, place: Place, opened: Opened, on_close: Callable[["RemoteContext"], None]):
        self._place, self._opened, self._on_close = place, opened, on_close
        self._agreed = 0
        """The first tokens that the server's context holds."""
        self._is_lost = self._is_closed = False
        self.n_ctx, self.n_chunk = opened.n_ctx, opened.n_chunk
        self.max_logits, self.max_rollback = opened.max_logits, opened.max_rollback
        self.tokens: list[int] = []
        self.device_sampling = RemoteSampling(self)

    @property
    def length(self) -> int:
        return len(self.tokens)

    def rollback_to(self, length: int) -> int:
        return min(length, self.length)

    def truncate(self, length: int) -> None:
        check_truncation(length, self.length)
        del self.tokens[length:]
        self._agreed = min(self._agreed, length)

    def checkpoint(self, *, is_brief: bool = False) -> None:
        """Any length is reachable: what the server cannot go back to, it reads again."""

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        if n_logits:  # a pass takes as long as one that verifies so many, but the rows stay there
            last = len(tokens) - n_logits + 1
            certain = Warping(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
            numbers = np.ones(n_logits)
            self.device_sampling.verify(tokens[:last], tokens[last:], None, certain, numbers)
        else:
            self.run(tokens)
        return np.empty((0, 0), np.float32)

    def run(self, tokens: Sequence[int], drafted: Sequence[int] = (), **asked: object) -> Passed:
        """Append tokens and drafted in one pass.

        Raises:
            ModelError: the server is gone, has another model, or failed; nothing was appended.
        """
        check_room(self, len(tokens) + len(drafted))
        with reaching(self._place.server.url):
            try:
                passed = self._run(tokens, drafted, **asked)
            except LostError:  # a new one reads all that was said
                self._is_lost, self._agreed = True, 0
                passed = self._run(tokens, drafted, **asked)
        known = max(passed.token, *passed.likeliest, 0) < self._place.n_vocab
        if not known or passed.accepted > len(drafted):
            raise ModelError("the server answered nonsense", "such a token is not in its model")
        self.tokens += [*tokens, *drafted]
        self._agreed = self.length - len(drafted) + passed.accepted
        return passed

    def _run(self, tokens: Sequence[int], drafted: Sequence[int], **asked: object) -> Passed:
        self._catch_up()
        return self._pass(self.length, tokens, drafted, **asked)

    def _catch_up(self) -> None:
        """Let the server hold what is held here."""
        place = self._place
        if self._is_lost:
            self._opened = place.server.open(place.model, self.n_ctx)
            self._is_lost = False
        while self._agreed < self.length:
            piece = self.tokens[self._agreed : self._agreed + self.n_chunk]
            self._pass(self._agreed, piece)
            self._agreed += len(piece)

    def _pass(
        self, length: int, tokens: Sequence[int], drafted: Sequence[int] = (), **asked: object
    ) -> Passed:
        place, named = self._place, (self._opened.context, self._place.model, self.n_ctx)
        lists = {"tokens": list(tokens), "drafted": list(drafted)}
        return place.server.run(*named, length=length, **lists, **asked)

    def forward_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        del tokens, parents
        raise ModelError("no tree is verified", f"the model {_NO_TREES}")

    def grow_tree(self, tokens: Sequence[int], parents: Sequence[int]) -> Logits:
        return self.forward_tree(tokens, parents)

    def commit(self, path: Sequence[int]) -> None:
        self.forward_tree(path, ())

    def save(self) -> CacheState:
        raise ModelError("the cache cannot be saved", "it is on another machine")

    def restore(self, tokens: Sequence[int], state: CacheState) -> None:
        del tokens, state
        raise ModelError("no cache can be restored", "it is on another machine")

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._on_close(self)

    def let_go(self) -> None:
        """Tell the server that it need not hold the tokens any more."""
        if not self._is_lost:
            try:
                self._place.server.close_context(self._opened.context)
            except (LostError, ModelError):
                return  # it closes idle ones by itself


class RemoteSampling:
    """Draws from the model where it is, with numbers from here."""

    keeps_rows = True

    def __init__(self, context: RemoteContext) -> None:
        self._context = context

    def draft(
        self, tokens: Sequence[int], warping: Warping, uniforms: NDArray[np.float64], n_vocab: int
    ) -> Drawn:
        del tokens, warping, uniforms, n_vocab
        raise ModelError("nothing is drafted there", f"the model {_NO_ROWS}")

    def verify(
        self,
        tokens: Sequence[int],
        drafted: Sequence[int],
        rows: Sequence[DeviceRow] | None,
        warping: Warping,
        uniforms: NDArray[np.float64],
        listener: Listener | None = None,
    ) -> tuple[int, int]:
        assert rows is None, "a q_draft is not sent: its tokens count as certain"
        passed = self._context.run(
            tokens,
            drafted,
            uniforms=uniforms.tolist(),
            likeliest=listener is not None,
            sampling={
                "temperature": warping.temperature,
                "top_k": warping.top_k,
                "top_p": warping.top_p,
                "min_p": warping.min_p,
            },
        )
        if listener is not None:
            listener(np.array(passed.likeliest, np.int64))
        return passed.accepted, passed.token
