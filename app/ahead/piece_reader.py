"""Reads the beginning of a prompt into a context, piece by piece, and takes it back if it changes.

A prompt that was read so gives the reply that it gives when it is read at once.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from app.ahead.piece_length import PieceLength
from app.ahead.read_pieces import ReadPieces
from app.ahead.waste import AheadTime
from app.loading.target_context import TargetContext
from backends.base import Context
from decoding.estimation.cost import CostModel
from decoding.planning.controller import Controller
from decoding.prefill import GROUP, common_prefix, in_blocks

_WORTHWHILE = 64
"""Tokens after which a lasting checkpoint of a running state is worth its memory, as in prompts. A
guess; not measured."""


class PieceReader:
    """Reads for one message after another, each followed by a reply.

    controller: of the drafters, None where nothing drafts.
    """

    def __init__(self, context: TargetContext, controller: Callable[[], Controller | None]) -> None:
        self._context = context
        self._controller = controller
        self._lengths = PieceLength(self._costs)
        self._pieces = ReadPieces()
        self._anchor: int | None = None
        """Length from which the message is read; groups and blocks are counted from it."""
        self._whole = 0
        """Tokens up to the end of the last whole block that was read."""
        self._checkpointed = 0
        """Tokens at the last lasting checkpoint."""
        self._drafters_have: tuple[Controller | None, Sequence[int]] = None, ()
        """Drafters, and the tokens that they have read."""

    def _costs(self) -> CostModel | None:
        controller = self._controller()
        return controller.costs if controller else None

    @property
    def wasted(self) -> float:
        """Processor seconds spent on text of this message that was taken back."""
        return self._pieces.wasted

    def replaced(self) -> None:
        """Note that the context holds something else."""
        self._pieces.cut(0)
        self._anchor, self._checkpointed = None, 0

    def read(self, tokens: Sequence[int], silence: float, about: int | None = None) -> bool:
        """Read one piece of tokens that the context lacks; False if it lacks too few of them.

        silence: seconds since the last key. What the context holds instead of them is taken back,
        but not what it holds beyond them. about: how many tokens the whole prompt will have, as far
        as is known; None if it is these and one more.

        Raises:
            ModelError: the engine failed.
            PassStoppedError: the piece was stopped, and the context is as it was before.
        """
        with self._context.use() as context:
            held = common_prefix(context.tokens, tokens)
            blocks_end = self._blocks_end(held, len(tokens) + 1 if about is None else about)
            # While a text is typed, a block that the prompt may not have in the end is kept.
            kept_end = blocks_end if about is None else max(blocks_end, self._whole)
            start = self._start(held, len(tokens), kept_end)
            block_room = min(blocks_end, len(tokens)) - start
            is_block = bool(context.block) and block_room >= context.block
            lacking = len(tokens) - (start if about is None else held)
            if not is_block and lacking < min(GROUP, context.n_chunk):
                return False
            self._pieces.cut(held)
            if held >= self._whole:  # it only grew, and what was read in groups becomes a block
                self._pieces.read_again(start)
            start = self._go_back(context, start)
            most = self._lengths.choose(context.n_chunk, silence, stops_passes=context.stops_passes)
            least = context.block if is_block else min(GROUP, most)
            room = block_room if is_block else len(tokens) - start
            if context.block and not is_block:
                room = min(room, context.block - GROUP)
            count = min(max(most, least), room)
            count -= count % least
            with self._measured(start, start + count):
                started = time.perf_counter()
                context.forward(tokens[start : start + count], 0)
                self._lengths.observe(count, time.perf_counter() - started)
            if is_block:
                self._whole = start + count
        return True

    def _blocks_end(self, held: int, total: int) -> int:
        """Where the blocks of a prompt end, of which so many tokens are held."""
        anchor = held if self._anchor is None else min(self._anchor, held)
        return anchor + in_blocks(total - anchor, self._context.block)

    def _start(self, held: int, end: int, blocks_end: int) -> int:
        """Where to read on from, if so many tokens are held of the first end tokens of a prompt.

        A prompt is read in whole blocks but for its end, which is read in groups. So a block that
        was read in groups is read again once all of it is known, and one that was read as a whole
        if the prompt has no block there.
        """
        context, anchor = self._context, self._anchor
        if anchor is None or held <= anchor or context.state_bytes:
            return held
        if not context.block:
            return held if held == context.length else held - (held - anchor) % GROUP
        begun = (held - anchor) % context.block
        blocks = min(held - begun, self._whole)
        if blocks > blocks_end:
            return blocks_end
        is_next_known = blocks + context.block <= min(end, blocks_end)
        return blocks if held < self._whole or is_next_known else held - begun % GROUP

    def _go_back(self, context: Context, start: int) -> int:
        """Keep so many tokens, or fewer; prepare to come back here. Returns how many are kept."""
        start = context.reachable(start)
        context.truncate(start)
        self._pieces.cut(start)
        self._checkpointed, self._whole = min(self._checkpointed, start), min(self._whole, start)
        is_new = self._anchor is None or start < self._anchor
        if is_new:
            self._anchor = self._checkpointed = self._whole = start
        if context.state_bytes:
            context.checkpoint(is_brief=not is_new)
        return start

    def rest(self) -> None:
        """Prepare to come back to where the certain text ends, as nothing more is to be read."""
        if self._context.state_bytes and self._context.length - self._checkpointed >= _WORTHWHILE:
            with self._context.use() as context:
                context.checkpoint()
            self._checkpointed = self._context.length

    def read_along(
        self, tokens: Sequence[int], seconds: float, is_wanted: Callable[[], bool]
    ) -> None:
        """Let drafters read the tokens that the context holds, in pieces of so many seconds.

        Raises:
            PassStoppedError: a piece was stopped.
        """
        controller = self._controller()
        held = tokens[: common_prefix(self._context.tokens, tokens)]
        if controller is None or not held or (controller, held) == self._drafters_have:
            return
        reading = controller.read_ahead(held, seconds)
        start = common_prefix(self._drafters_have[1], held)
        while is_wanted():
            with self._measured(start, len(held), is_drafters=True):
                if next(reading, None) is None:
                    self._drafters_have = controller, held
                    return

    def hand_over(self, prompt: Sequence[int]) -> tuple[int, AheadTime]:
        """Leave the context to a reply, as it would be if its prompt were read at once.

        Returns how many tokens of the prompt were read ahead, and what became of the time.
        """
        context = self._context
        kept = min(common_prefix(context.tokens, prompt), len(prompt) - 1)
        start = self._start(kept, len(prompt), self._blocks_end(kept, len(prompt)))
        anchor = start if self._anchor is None else self._anchor
        if context.block and len(prompt) - start == 1 and start - anchor >= GROUP:
            start -= GROUP  # as kernels for a single token may round otherwise
        self._pieces.cut(kept)
        if start < kept and context.reachable(start) == start:
            kept = start
            self._pieces.read_again(start)
            with self._context.use() as used:
                used.truncate(start)
        self._anchor, self._drafters_have = None, (None, ())
        return self._pieces.settle(context.reachable(kept))

    def change_message(self, tokens: Sequence[int]) -> AheadTime:
        """Begin with another message instead; returns the time that was wasted on this one.

        tokens: what the other one begins with. What they share was not in vain.
        """
        self._pieces.cut(common_prefix(self._context.tokens, tokens))
        return self._pieces.take_wasted()

    def abandon(self) -> AheadTime:
        """Give up the message; returns the time that was wasted on it."""
        return self._pieces.settle(0)[1]

    @contextmanager
    def _measured(self, start: int, end: int, *, is_drafters: bool = False) -> Generator[None]:
        """Account for the processor time of the block, which reads these positions."""
        before = time.process_time()
        try:
            yield
        except BaseException:
            self._pieces.lost(time.process_time() - before)
            raise
        spent = time.process_time() - before
        self._pieces.add(start, end, spent, is_drafters=is_drafters)
