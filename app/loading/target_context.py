"""Exclusive access to the context of a session's model."""

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager

from backends.base import Context, Model, OutOfMemoryError, SpecchatError


class ContextInUseError(SpecchatError):
    """The context is in use by a reply, and nothing else may run it before the reply ends."""

    def __init__(self) -> None:
        super().__init__(
            "the model cannot be measured now",
            "an answer is being generated, and there is not enough memory for a second context",
            "It is measured once the answer has ended.",
        )


class TargetContext:
    """Facts about a model's context, and exclusive access to it.

    Anything that ran the context during a reply would change what the model generates next, so a
    context in use cannot be reached.
    """

    def __init__(self, model: Model, context: Context) -> None:
        self._model = model
        self._context = context
        self._is_in_use = False

    @property
    def n_ctx(self) -> int:
        return self._context.n_ctx

    @property
    def n_chunk(self) -> int:
        return self._context.n_chunk

    @property
    def max_logits(self) -> int:
        return self._context.max_logits

    @property
    def tokens(self) -> Sequence[int]:
        return self._context.tokens

    @property
    def length(self) -> int:
        return self._context.length

    @property
    def can_roll_back(self) -> bool:
        return self._context.can_roll_back

    @property
    def can_verify_tree(self) -> bool:
        return self._context.can_verify_tree

    @property
    def tree_refusal(self) -> str:
        return self._context.tree_refusal

    @property
    def max_branches(self) -> int:
        return self._context.max_branches

    @property
    def kv_bytes_per_token(self) -> int:
        return self._context.kv_bytes_per_token

    @contextmanager
    def use(self) -> Generator[Context]:
        """Exclusive use of the context within the block.

        Raises:
            ContextInUseError: it is in use.
        """
        if self._is_in_use:
            raise ContextInUseError
        self._is_in_use = True
        try:
            yield self._context
        finally:
            self._is_in_use = False

    @contextmanager
    def for_measuring(self, n_tokens: int) -> Generator[Context]:
        """An empty context of n_tokens at most, which leaves a conversation in the first intact.

        If there is not enough memory for a second context, the first one is emptied instead,
        unless it is in use.

        Raises:
            ContextInUseError: the first is in use, and there is not enough memory for a second.
            ModelError: the engine failed.
        """
        if self._is_in_use or self.length:
            try:
                second = self._model.open(min(n_tokens, self.n_ctx))
            except OutOfMemoryError:
                pass
            else:
                with closing(second):
                    yield second
                return
        with self.use() as context:
            context.truncate(0)
            yield context
