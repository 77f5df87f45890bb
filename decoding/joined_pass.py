"""What a reply asks of the model, alone or in one pass with other replies.

A reply is written as if it were alone. Beside others it runs in a greenlet of its own, and waits
where it would run the model, until the others have come as far (decoding/planning/batch.py).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from greenlet import getcurrent, greenlet

from backends.base import Context, Logits
from backends.base.images import IMAGE_TOKENS
from backends.base.model import SharedContext
from decoding.draft import Draft

_PIECE = 64
"""Most tokens that a drafter reads between two passes of those who write: a block of the
processor's kernels."""


class PassCost(Protocol):
    """What drafting costs (decoding.estimation.cost.DraftCost)."""

    def together(self, count: int) -> float: ...
    def observe_together(self, count: int, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class SharedDrafter:
    """A drafter model whose sequences share the cells of context, and what its passes cost."""

    context: SharedContext
    cost: PassCost


class JoinedReply(greenlet):
    """A reply, and what it waits for: how much of a draft or a prompt to run, a pass, its turn."""

    def __init__(
        self,
        context: Context,
        work: Callable[[], None],
        *,
        is_program: bool = True,
        is_awaited: Callable[[], bool] = lambda: True,
    ) -> None:
        """is_awaited: whether others wait for its turn to end; if not, it goes on where alone."""
        super().__init__(work)
        self._is_awaited = is_awaited
        self.context = context
        self.is_program = is_program
        self.offer: Sequence[float] = ()
        """Acceptance of the tokens of a draft of which a part is to be run."""
        self.cost: PassCost | None = None
        """What it costs to draft them, where that is yet to be done."""
        self.start = 0.0
        """Seconds that its drafter reads before."""
        self.rows = 1
        """Of its next pass, as far as it was told."""
        self.left = 0
        """Tokens of its prompt of which a piece is to be read."""
        self.due: float = math.nan
        """How many would be left if all who read had read as much as each other."""
        self.is_held = False
        """Whether it waits, with its prompt read, until none would."""
        self.tokens: Sequence[int] = ()
        """What is to be run in one pass with the others."""
        self.n_logits = 0
        """How many of the last of these leave logits."""
        self.is_writing = False
        """Whether its prompt is read."""
        self.is_alone = True
        self.drafters: dict[Context, SharedDrafter] = {}
        """By the sequence that it has of each."""
        self.drafting: Context | None = None
        """That of these whose pass it waits for, if not the model's."""

    def ask(
        self,
        offer: Sequence[float] = (),
        left: int = 0,
        cost: PassCost | None = None,
        start: float = 0.0,
    ) -> int | None:
        """How many tokens of a draft, or of its prompt, to run; None for as many as alone."""
        self.offer, self.left, self.is_writing, self.cost = offer, left, not left, cost
        self.start = start
        self.due = left if left and math.isnan(self.due) else self.due
        count = self._wait()
        assert isinstance(count, int | None)
        self.offer, self.left, self.rows = (), 0, 1 + (0 if left else count or 0)
        return count

    def run_pass(
        self, tokens: Sequence[int] = (), n_logits: int = 0, drafting: Context | None = None
    ) -> Logits | None:
        """The last rows after its tokens; None if it is to run them itself, now.

        drafting: the sequence of its drafter that they are to follow, if not the model's.
        """
        self.tokens, self.n_logits, self.drafting = tokens, n_logits, drafting
        rows = self._wait()
        self.tokens, self.drafting = (), None
        if drafting is None:
            self.is_writing, self.rows = True, 1
        return None if isinstance(rows, int) else rows

    def _wait(self) -> Logits | int | None:
        if self.is_alone and not self._is_awaited():  # 0.08 ms of each step less
            self.is_writing, self.due = not self.left, float(self.left)
            return None
        assert self.parent is not None
        return self.parent.switch()


def _running() -> JoinedReply | None:
    """The reply that runs now, if it runs in a greenlet."""
    return reply if isinstance(reply := getcurrent(), JoinedReply) else None


def _current(context: Context) -> JoinedReply | None:
    """The reply that runs now, if this is its context."""
    reply = _running()
    return reply if reply is not None and reply.context is context else None


def _drafting(context: Context) -> JoinedReply | None:
    """The reply that runs now beside others, if a drafter of it has this context."""
    reply = _running()
    return reply if reply and context in reply.drafters and not reply.is_alone else None


def forward(context: Context, tokens: Sequence[int], n_logits: int) -> Logits:
    """As Context.forward, in one pass with other replies where there are some."""
    rows = None
    if reply := _current(context):
        is_text = max(tokens) < IMAGE_TOKENS
        rows = reply.run_pass(tokens, n_logits) if is_text else reply.run_pass()
    elif reply := _drafting(context):  # what leaves no row is read in turn
        rows = reply.run_pass(tokens if n_logits else (), n_logits, context)
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
    """How many of the tokens left of a prompt to read in one pass; None for as many as alone.

    0 while others read theirs.
    """
    if reply := _current(context):
        return reply.ask(left=left)
    return min(left, _PIECE, context.n_chunk) if _drafting(context) else None


def take_part(context: Context, drafter: SharedDrafter) -> None:
    """Let passes of a drafter's sequence join those that other replies run of it."""
    if reply := _running():
        reply.drafters[context] = drafter


def room_to_draft(acceptance: Sequence[float], cost: PassCost, start: float) -> int | None:
    """How many of the tokens that a model would draft to draft; None for as many as alone.

    start: seconds that it reads before.
    """
    reply = _running()
    return reply.ask(acceptance, cost=cost, start=start) if reply and not reply.is_alone else None
