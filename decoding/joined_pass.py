"""What a reply asks of the model, alone or in one pass with other replies.

A reply is written as if it were alone. Beside others it runs in a greenlet of its own, and waits
where it would run the model, until the others have come as far (decoding/planning/batch.py).
"""

from collections.abc import Callable, Sequence

from greenlet import getcurrent, greenlet

from backends.base import Context, Logits
from decoding.draft import Draft


class JoinedReply(greenlet):
    """A reply, and what it waits for: a part of its draft, a pass over tokens, or just its turn."""

    def __init__(self, context: Context, work: Callable[[], None]) -> None:
        super().__init__(work)
        self.context = context
        self.piece = context.n_chunk
        """Most tokens of its prompt to be read in its next turn."""
        self.offer: Sequence[float] = ()
        """Acceptance of the tokens of a draft of which a part is to be run."""
        self.tokens: Sequence[int] = ()
        """What is to be run in one pass with the others."""
        self.is_writing = False
        """Whether it runs passes that join those of others: its prompt is read."""

    def ask(self, acceptance: Sequence[float]) -> int:
        """How many tokens of a draft to run."""
        self.offer = acceptance
        count = self._wait()
        self.offer = ()
        assert isinstance(count, int)
        return count

    def run_pass(self, tokens: Sequence[int]) -> Logits | None:
        """The rows after each of its tokens; None if it is to run them itself, now."""
        self.tokens = tokens
        self.is_writing = self.is_writing or len(tokens) > 0
        rows = self._wait()
        self.tokens = ()
        return None if isinstance(rows, int) else rows

    def _wait(self) -> Logits | int | None:
        assert self.parent is not None
        return self.parent.switch()


def _current(context: Context) -> JoinedReply | None:
    """The reply that runs now, if this is its context."""
    reply = getcurrent()
    return reply if isinstance(reply, JoinedReply) and reply.context is context else None


def forward(context: Context, tokens: Sequence[int], n_logits: int) -> Logits:
    """As Context.forward, in one pass with other replies where there are some."""
    reply = _current(context)
    rows = reply.run_pass(tokens if n_logits == len(tokens) else ()) if reply else None
    return context.forward(tokens, n_logits) if rows is None else rows


def admitted(context: Context, draft: Draft) -> Draft:
    """As much of a draft as is worth running beside those of other replies."""
    reply = _current(context)
    if reply is None or not draft.acceptance:
        return draft
    count = reply.ask(draft.acceptance)
    return draft if count == len(draft) else draft.first(count)


def have_turn(context: Context) -> None:
    """Let other replies go on before a pass that cannot join theirs."""
    if (reply := _current(context)) is not None:
        reply.run_pass(())


def piece(context: Context) -> int:
    """Most tokens of a prompt to be read in one pass."""
    reply = _current(context)
    return reply.piece if reply else context.n_chunk
