"""What a reply asks of the model, alone or in one pass with other replies.

A reply is written as if it were alone. Beside others it runs in a greenlet of its own, and waits
where it would run the model, until the others have come as far (decoding/planning/batch.py).
"""

from collections.abc import Callable, Sequence

from greenlet import getcurrent, greenlet

from backends.base import Context, Logits
from backends.base.images import IMAGE_TOKENS
from decoding.draft import Draft


class JoinedReply(greenlet):
    """A reply, and what it waits for: how much of a draft or a prompt to run, a pass, its turn."""

    def __init__(self, context: Context, work: Callable[[], None]) -> None:
        super().__init__(work)
        self.context = context
        self.offer: Sequence[float] = ()
        """Acceptance of the tokens of a draft of which a part is to be run."""
        self.left = 0
        """Tokens of its prompt of which a piece is to be read."""
        self.tokens: Sequence[int] = ()
        """What is to be run in one pass with the others."""
        self.n_logits = 0
        """How many of the last of these leave logits."""
        self.is_writing = False
        """Whether its prompt is read."""

    def ask(self, offer: Sequence[float] = (), left: int = 0) -> int | None:
        """How many tokens of a draft, or of its prompt, to run; None for as many as alone."""
        self.offer, self.left, self.is_writing = offer, left, not left
        count = self._wait()
        self.offer, self.left = (), 0
        assert isinstance(count, int | None)
        return count

    def run_pass(self, tokens: Sequence[int] = (), n_logits: int = 0) -> Logits | None:
        """The last rows after its tokens; None if it is to run them itself, now."""
        self.tokens, self.n_logits = tokens, n_logits
        rows = self._wait()
        self.tokens, self.is_writing = (), True
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
    rows = None
    if reply := _current(context):
        is_text = max(tokens) < IMAGE_TOKENS
        rows = reply.run_pass(tokens, n_logits) if is_text else reply.run_pass()
    return context.forward(tokens, n_logits) if rows is None else rows


def admitted(context: Context, draft: Draft) -> Draft:
    """As much of a draft as is worth running beside those of other replies."""
    reply = _current(context)
    if reply is None or not draft.acceptance:
        return draft
    count = reply.ask(draft.acceptance)
    return draft if count in (None, len(draft)) else draft.first(count)


def have_turn(context: Context) -> None:
    """Let other replies go on before a pass that cannot join theirs."""
    if (reply := _current(context)) is not None:
        reply.run_pass()


def piece(context: Context, left: int) -> int | None:
    """How many of the tokens left of a prompt to read in one pass; None for as many as alone."""
    reply = _current(context)
    return reply.ask(left=left) if reply else None
