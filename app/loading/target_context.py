"""Exclusive access to the context of a session's model."""

from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from typing import TypeVar

from backends.base import (
    Context,
    ContextFacts,
    Model,
    ModelError,
    OutOfMemoryError,
    Rollback,
    SpecchatError,
)

OpenedT = TypeVar("OpenedT")

_NO_SECOND = "there is not enough memory for a second one"


class ContextInUseError(SpecchatError):
    """The context is in use by a reply, and nothing else may run it before the reply ends.

    reason: why it takes this context, as a clause.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            "this cannot be done during an answer",
            f"the answer is using the model's context, and {reason}",
            "Wait for its end or stop it, then try again.",
        )


class TargetContext:
    """Exclusive access to a model's context, and facts about it.

    Anything that ran the context during a reply would change what the model generates next, so a
    context in use cannot be reached.
    """

    def __init__(self, model: Model, context: Context, *, drafts: bool = True) -> None:
        """drafts: whether drafts can be verified in it, as far as the model allows."""
        self._model = model
        self._context = context
        self._is_in_use = False
        is_bare = not drafts and not context.max_rollback
        self._lacks_copies = is_bare and model.info.rollback is Rollback.BOUNDED

    @property
    def facts(self) -> ContextFacts:
        """What there is to know of it at present, also during a reply."""
        return self._context

    def beside(self, opened: Callable[[Context], OpenedT]) -> OpenedT:
        """Open something that reads what passes of the context leave; allowed during a reply.

        opened: must not run the context.
        """
        return opened(self._context)

    def empty(self, reason: str) -> None:
        """Forget all that the context holds; reason: why, in a few words.

        Raises:
            ContextInUseError: a reply needs what it holds.
        """
        if self._is_in_use and self._context.length:
            raise ContextInUseError(reason)
        self._context.truncate(0)

    def be_ready_to_draft(self) -> None:
        """Open the context anew with copies of its running state, if it was opened without.

        What it holds stays, but for want of memory to copy it: then it is read again.

        Raises:
            ContextInUseError: a reply uses it.
            OutOfMemoryError: others have taken its memory meanwhile.
        """
        if not self._lacks_copies:
            return
        if self._is_in_use:
            raise ContextInUseError("it holds no copies of the model's running state yet")
        previous = self._context
        tokens, state = list(previous.tokens), None
        if tokens:
            with suppress(ModelError, MemoryError):
                state = previous.save()
        opened = self._model.open(previous.n_ctx)  # if this raises, all is as before
        previous.close()
        self._context = opened
        self._lacks_copies = False
        if state is not None:
            with suppress(ModelError):
                self._context.restore(tokens, state)

    @contextmanager
    def use(self) -> Generator[Context]:
        if self._is_in_use:
            raise ContextInUseError("only one can be generated at a time")
        self._is_in_use = True
        try:
            yield self._context
        finally:
            self._is_in_use = False

    def second(self, n_tokens: int) -> closing[Context]:
        """An empty context of n_tokens at most beside this one, whatever this one holds.

        Raises:
            OutOfMemoryError: there is not enough memory for one.
            ModelError: the engine failed.
        """
        return closing(self._model.open(min(n_tokens, self._context.n_ctx)))

    @contextmanager
    def for_measuring(self, n_tokens: int) -> Generator[Context]:
        """An empty context of n_tokens at most, which leaves a conversation in the first intact.

        Drafts can be verified in it, as far as the model allows, even if not in the first. If there
        is not enough memory for a second context, the first one is emptied instead, unless it is in
        use, and opened anew if drafts cannot be verified in it.

        Raises:
            ContextInUseError: the first is in use, and there is not enough memory for a second.
            OutOfMemoryError: the first would have to be opened anew, and memory is short for that.
            ModelError: the engine failed.
        """
        if self._is_in_use or self._context.length or self._lacks_copies:
            try:
                second = self._model.open(min(n_tokens, self._context.n_ctx))
            except OutOfMemoryError as error:
                if self._is_in_use:
                    raise ContextInUseError(_NO_SECOND) from error
            else:
                with closing(second):
                    yield second
                return
        self.be_ready_to_draft()
        with self.use() as context:
            context.truncate(0)
            yield context
