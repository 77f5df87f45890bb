"""Context of an assistant of Gemma 4, which reads the cache of the model it drafts for."""

# mlx and mlx-lm are typed in part only:
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import mlx.core as mx
import numpy as np

from backends.base import Logits, ModelError, check_truncation
from backends.base.head_limits import HeadLimits
from backends.base.hidden_states import HiddenStates
from backends.mlx.heads.assistant.assistant_module import AssistantModule
from backends.mlx.heads.assistant.assisted_model import AssistedModel
from backends.mlx.mlx_context import MlxContext
from backends.mlx.sampling.mlx_sampling import MlxSampling

_FAILED = "the assistant could not draft"


class AssistantContext(HeadLimits):
    """Reads a token and the hidden state before it, with the model's own entries.

    What the model has passed need not be read, so that only later tokens take a pass, all of them
    at the place after the model's last entry. Their states are the assistant's own but for that of
    the model's last token. Its own entries it keeps none.
    """

    kv_bytes_per_token = 0

    def __init__(
        self,
        module: AssistantModule,
        assisted: AssistedModel,
        target: MlxContext,
        states: HiddenStates,
        *,
        on_close: Callable[[], None],
    ) -> None:
        """Draft beside a context; states: what the model's last layer leaves in it."""
        self._module: AssistantModule | None = module
        self._assisted: AssistedModel | None = assisted
        self._target = target
        self._states = states
        self.n_ctx = self.depth = target.n_ctx
        self.n_chunk, self.max_logits = target.n_chunk, target.max_logits
        self._n_vocab = module.n_vocab
        self._on_close = on_close
        self.tokens = []
        self._length = 0
        """Tokens passed: those held, and in a draft those that are still being computed."""
        self._own: mx.array | None = None
        """The assistant's state after the last of them, if that took a pass."""
        self.device_sampling = MlxSampling(self)

    def reachable(self, length: int) -> int:
        """At most what the model has passed: the assistant's own state after more is not kept."""
        return min(length, len(self.tokens), self._target.length)

    def forward(self, tokens: Sequence[int], n_logits: int) -> Logits:
        assert 0 <= n_logits <= min(len(tokens), self.max_logits)
        assert len(tokens) <= self.n_chunk
        with self.growing(len(tokens)):
            rows = self.logits(mx.array(list(tokens)), n_logits).astype(mx.float32)
            mx.eval(rows, [] if self._own is None else self._own)
        self.passed(tokens)
        return np.array(rows, copy=False)

    @contextmanager
    def growing(self, count: int) -> Generator[None]:
        """Guard passes over count more tokens; if one fails, the context is as before.

        Raises:
            ModelError: they do not fit, or the engine failed.
        """
        self._check_room(count)
        self._length, own = self.length, self._own
        self._states.release(self._states.end - 1)  # no other is read
        try:
            yield
        except (RuntimeError, ValueError, ModelError) as error:
            self._own = own
            if isinstance(error, ModelError):
                raise
            raise ModelError(_FAILED, str(error)) from error

    def logits(self, tokens: mx.array, n_logits: int) -> mx.array:
        """Lazy logits of the last n_logits of a pass over tokens, shape (count,)."""
        passed = min(max(self._target.length - self._length, 0), tokens.size)
        if tokens.size - n_logits < passed:
            raise ModelError(_FAILED, "its model has read further")
        if passed:
            self._length += passed
            self._own = None
        rows = [self._pass(tokens[place : place + 1]) for place in range(passed, tokens.size)]
        return mx.concatenate(rows[-n_logits:]) if n_logits else mx.zeros((0, self._n_vocab))

    def logits_of(self, token: int) -> mx.array:
        return self.logits(mx.array([token]), 1)

    def foresee(self, token: mx.array) -> None:
        """Nothing to prepare: the next draft reads what the model will have passed by then."""

    @property
    def unread(self) -> Sequence[mx.array]:
        """Nothing: no head reads a head."""
        return ()

    def passed(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)

    def _pass(self, token: mx.array) -> mx.array:
        """Lazy logits after a token, shape (1, n_vocab)."""
        assert self._module is not None, "the context is closed"
        assert self._assisted is not None, "the context is closed"
        place = self._target.length
        shared = self._assisted.shared(self._target.settled_caches(), place)
        embedded = self._assisted.embed(token)
        logits, self._own = self._module(embedded, self._state(), shared, place)
        self._length += 1
        return logits

    def _state(self) -> mx.array:
        """The state after the last token; zeros if none is known, as while costs are measured."""
        states, length = self._states, self._length
        if length > self._target.length and self._own is not None:
            return self._own
        if states.first < length == states.end:
            return mx.array(states.rows(length - 1, length))
        return mx.zeros((1, states.width))

    def truncate(self, length: int) -> None:
        check_truncation(length, len(self.tokens))
        if length < len(self.tokens):
            del self.tokens[length:]
            self._own = None

    def close(self) -> None:
        if self._module is None:
            return
        self._module = self._assisted = self._own = None
        self._on_close()
