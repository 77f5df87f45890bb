"""Replies side by side: what they ask of the model at one moment runs in one pass.

A reply is written as if it were alone, and runs in a greenlet of its own: where it would run the
model, it waits until the others have come as far. Every sequence keeps what was accepted of its own
rows, so that ragged lengths need no padding (Qian et al. 2024, "BASS", arXiv 2404.15778, pads them
or splits attention).
"""

import time
from collections.abc import Callable, Iterator, Sequence

from greenlet import getcurrent, greenlet

from backends.base import Context, Logits, SpecchatError
from backends.base.model import SharedContext
from decoding.estimation.cost import CostModel

_PIECE = 64
"""Most tokens of a prompt that are read between two passes of those who write: a block of the
processor's kernels, which takes about as long as ten plain steps."""


class _Reply(greenlet):
    """A reply, and what it waits for: to run its tokens, or, without any, to have its turn."""

    def __init__(self, batch: "Batch", context: Context, work: Callable[[], None]) -> None:
        super().__init__(work)
        self.batch = batch
        self.context = context
        self.tokens: Sequence[int] = ()
        self.is_writing = False
        """Whether it runs passes that join those of others: its prompt is read."""

    def wait(self, tokens: Sequence[int]) -> Logits | None:
        """The rows after each of its tokens; None if it is to run them itself, now."""
        self.tokens = tokens
        self.is_writing = self.is_writing or len(tokens) > 0
        assert self.parent is not None
        rows = self.parent.switch()
        self.tokens = ()
        return rows


class Batch:
    """Replies that share the cells of a context, each in a sequence of its own.

    costs: of passes, which are told how many share them; None where nothing drafts. Everything runs
    on the thread that calls step.
    """

    def __init__(
        self,
        context: SharedContext,
        costs: Callable[[], CostModel | None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._context = context
        self._costs = costs
        self._clock = clock
        self._replies: list[_Reply] = []
        """In the order in which they draft, which goes round: the first finds the rows cheapest."""

    def __len__(self) -> int:
        return len(self._replies)

    def begin(self, context: Context, work: Callable[[], None]) -> None:
        """Let work, which generates a reply in a sequence of the context, take part from now on."""
        self._replies.append(_Reply(self, context, work))

    def step(self) -> None:
        """Run one pass for all who write, and give one of those who read a prompt its turn."""
        writing = [reply for reply in self._replies if reply.tokens]
        for group in _groups(writing, self._context.max_logits):
            rows = self._together(group) if len(group) > 1 else None
            for place, reply in enumerate(group):
                self._resume(reply, rows[place] if rows else None)
        reading = (reply for reply in self._replies if not reply.tokens)
        if (reply := next(reading, None)) is not None:
            self._resume(reply, None)
        self._replies = [*self._replies[1:], *self._replies[:1]]

    def close(self) -> None:
        """End all replies that have begun, wherever they are."""
        for reply in self._replies:
            reply.throw()
        self._replies.clear()

    def _together(self, group: Sequence[_Reply]) -> list[Logits] | None:
        """The rows of each; None where each is to run alone: a fault is one's own."""
        costs, began = self._costs(), self._clock()
        passes = [(one.context, one.tokens) for one in group]
        count = sum(len(one.tokens) for one in group)
        width = costs.width(count) if costs else count
        context, tokens = passes[-1]
        passes[-1] = (context, [*tokens, *[tokens[-1]] * (width - count)])  # whoever asked cuts it
        try:
            rows = self._context.forward_together(passes)
        except SpecchatError:
            return None
        if costs is not None:
            costs.observe_together(width, self._clock() - began)
        return [*rows[:-1], rows[-1][: len(tokens)]]

    def _resume(self, reply: _Reply, rows: Logits | None) -> None:
        """Let a reply go on until it waits again; its costs are those beside the others."""
        costs = self._costs()
        others = [one for one in self._replies if one.is_writing and one is not reply]
        if costs is not None:
            costs.share(1 + len(others), sum(max(len(one.tokens), 1) for one in others))
        try:
            reply.switch() if not reply else reply.switch(rows)
        finally:
            if costs is not None:
                costs.share(1, 0)
            if reply.dead:
                self._replies.remove(reply)

    def piece(self, reply: _Reply) -> int:
        """Most tokens of a reply's prompt to be read in its turn."""
        most = reply.context.n_chunk
        is_alone = not any(one.is_writing for one in self._replies if one is not reply)
        return most if is_alone else min(most, _PIECE)


def _groups(replies: Sequence[_Reply], most: int) -> Iterator[list[_Reply]]:
    """Replies whose rows fit one pass."""
    group, rows = list[_Reply](), 0
    for reply in replies:
        if rows + len(reply.tokens) > most and group:
            yield group
            group, rows = [], 0
        group.append(reply)
        rows += len(reply.tokens)
    if group:
        yield group


def _current(context: Context) -> _Reply | None:
    """The reply that runs now, if this is its context."""
    reply = getcurrent()
    return reply if isinstance(reply, _Reply) and reply.context is context else None


def forward(context: Context, tokens: Sequence[int], n_logits: int) -> Logits:
    """As Context.forward, in one pass with other replies where there are some."""
    reply = _current(context)
    rows = reply.wait(tokens if n_logits == len(tokens) else ()) if reply else None
    return context.forward(tokens, n_logits) if rows is None else rows


def have_turn(context: Context) -> None:
    """Let other replies go on before a pass that cannot join theirs."""
    if (reply := _current(context)) is not None:
        reply.wait(())


def piece(context: Context) -> int:
    """Most tokens of a prompt to be read in one pass."""
    reply = _current(context)
    return reply.batch.piece(reply) if reply else context.n_chunk
