"""The context of a session's model, which one user runs at a time."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from backends.base import Context, Model, OutOfMemoryError, SpecchatError


class ContextInUseError(SpecchatError):
    """A context that a reply runs, and that nothing else may run until its end."""

    def __init__(self) -> None:
        super().__init__(
            "the model cannot be measured now",
            "an answer is at work, and there is no memory for a second context",
            "It is done as soon as the answer has ended.",
        )


class TargetContext:
    """What is known of a model's context; whoever runs it has to ask for it.

    A reply keeps what it said in the context alone. Anything else that ran it meanwhile would
    change what the model says next, so there is no way to a context that is in use.
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
    def use(self) -> Iterator[Context]:
        """The context itself, for one user until the block ends.

        Raises:
            ContextInUseError: another one uses it.
        """
        if self._is_in_use:
            raise ContextInUseError
        self._is_in_use = True
        try:
            yield self._context
        finally:
            self._is_in_use = False

    @contextmanager
    def for_measuring(self, n_tokens: int) -> Iterator[Context]:
        """An empty context of n_tokens, or of as many as the model's own where that has fewer.

        It is another one than the model's own, which may hold a conversation or be in use. Where
        there is no memory for it, the model's own is emptied, if that is free.

        Raises:
            ContextInUseError: there is no memory for a second context, and a reply runs the first.
            ModelError: the engine failed.
        """
        if self._is_in_use or self.length:
            try:
                other = self._model.open(min(n_tokens, self.n_ctx))
            except OutOfMemoryError:
                pass
            else:
                with closing(other):
                    yield other
                return
        with self.use() as context:
            context.truncate(0)
            yield context
