"""Reads the beginning of a prompt into a context, piece by piece, and takes it back if it changes.

A prompt that was read so gives the reply that it gives when it is read at once.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from app.learned.store import Store, number
from app.loading.target_context import TargetContext
from app.paths import Paths
from backends.base import Context
from backends.base.images import blind
from decoding.estimation.cost import CostModel
from decoding.planning.controller import Controller
from decoding.prefill import GROUP, common_prefix, in_blocks

SHORT_SECONDS = 0.05
"""Longest piece where a plain step is shorter: a delay that is hardly felt."""

STOPPABLE_SECONDS = 0.25
"""Longest piece while keys are pressed where passes can be stopped: what is lost then. Short pieces
read slower: on two cores a 1.1B model in Q4_0 reads 62 tokens a second in groups of 4, 87 by 16."""

_PLAIN_STEPS = 1.2
"""Plain steps that a piece may take where one takes longer: on GPUs, and with weights read from
disk, several tokens take little more than one."""

QUIET_SECONDS = 10.0
"""Time without a key after which pieces that can be stopped are as long as in a prompt."""

_CORRECTION = 0.3
"""Share by which a measured piece corrects the speed of its length. A guess; not measured."""


class PieceLength:
    """Chooses lengths of pieces by the measured cost of passes, and by the pieces read so far.

    costs: of the target's passes, None where they were not measured.
    """

    def __init__(self, costs: Callable[[], CostModel | None]) -> None:
        self._costs = costs
        self._measured: dict[int, float] = {}

    def choose(self, most: int, silence: float, *, stops_passes: bool) -> int:
        """Number of tokens of the next piece; most: the longest pass of the context.

        silence: seconds since the last key. stops_passes: whether a piece can be stopped.
        """
        if stops_passes and silence >= QUIET_SECONDS:
            return most
        longest = STOPPABLE_SECONDS if stops_passes else SHORT_SECONDS
        longest = max(longest, _PLAIN_STEPS * (self.seconds(1) or 0.0))
        length = min(GROUP, most)
        while 2 * length <= most and (self.seconds(2 * length) or longest + 1.0) <= longest:
            length *= 2
        return length

    def observe(self, count: int, seconds: float) -> None:
        known = self._measured.get(count, seconds)
        self._measured[count] = known + _CORRECTION * (seconds - known)

    def seconds(self, count: int) -> float | None:
        """Expected seconds of a piece of so many tokens, None while nothing is known.

        In proportion to the longest shorter pass where none of this length is known: too long
        rather than too short.
        """
        if count in self._measured:
            return self._measured[count]
        costs = self._costs()
        if costs is not None and count <= costs.largest:
            return costs.seconds(count)
        shorter = [length for length in self._measured if GROUP <= length < count]
        if shorter:
            nearest = max(shorter)
            return self._measured[nearest] * count / nearest
        if costs is not None and count > 1:
            return costs.seconds(costs.largest) * count / costs.largest
        return None


@dataclass(frozen=True, slots=True)
class AheadTime:
    """Processor seconds of reading ahead: of text that was then asked, and of text that was not."""

    used: float = 0.0
    wasted: float = 0.0

    @classmethod
    def kept(cls, paths: Paths) -> "AheadTime":
        """Totals of all sessions; zeros if none are kept."""
        return _totals(paths).read() or cls()

    def __add__(self, other: "AheadTime") -> "AheadTime":
        return AheadTime(self.used + other.used, self.wasted + other.wasted)

    def keep(self, paths: Paths) -> None:
        if self.used > 0.0 or self.wasted > 0.0:
            _totals(paths).change(lambda before: (before or AheadTime()) + self)


def _totals(paths: Paths) -> Store[AheadTime]:
    return Store(
        paths.read_ahead,
        1,
        lambda stored: AheadTime(*(number(stored[f"{one}_seconds"]) for one in ("used", "wasted"))),
        lambda time: {"used_seconds": time.used, "wasted_seconds": time.wasted},
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    start: int
    end: int
    seconds: float
    is_drafters: bool

    def upto(self, length: int) -> "_Piece":
        if self.end <= length:
            return self
        end = max(self.start, min(self.end, length))
        share = (end - self.start) / (self.end - self.start)
        return replace(self, end=end, seconds=share * self.seconds)


class ReadPieces:
    """Pieces read for the next message, by their places in the context."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []
        self.wasted = 0.0
        """Processor seconds spent on what was taken back since the last message."""
        self._again = 0.0
        """Processor seconds of what is the same, but was taken back to be read again."""
        self._closed = AheadTime()
        """Of messages that were sent or given up."""

    def add(self, start: int, end: int, seconds: float, *, is_drafters: bool = False) -> None:
        """Note a piece that was read; is_drafters: by drafters, after the target."""
        self._pieces.append(_Piece(start, end, seconds, is_drafters))

    def lost(self, seconds: float) -> None:
        self.wasted += seconds

    def cut(self, length: int) -> None:
        self.wasted += self._removed(length)

    def read_again(self, length: int) -> None:
        """Note that all beyond so many tokens is read again as it is: it was not in vain."""
        self._again += self._removed(length)

    def _removed(self, length: int) -> float:
        """Remove what was read beyond a length; returns its seconds."""
        before = sum(piece.seconds for piece in self._pieces)
        self._pieces = [piece.upto(length) for piece in self._pieces if piece.start < length]
        return before - sum(piece.seconds for piece in self._pieces)

    def change_message(self, length: int) -> None:
        """Count so many tokens of the context for another message, and none of the time so far."""
        self.cut(length)
        self._closed += AheadTime(0.0, self.wasted)
        self.wasted = 0.0

    def settle(self, length: int) -> int:
        """Close the account of a message that begins with so many tokens of the context.

        Returns how many of them were read ahead.
        """
        self.change_message(length)
        self._closed += AheadTime(sum(piece.seconds for piece in self._pieces) + self._again)
        tokens = sum(piece.end - piece.start for piece in self._pieces if not piece.is_drafters)
        self._pieces, self._again = [], 0.0
        return tokens

    def take_closed(self) -> AheadTime:
        """The time of closed accounts since the last call."""
        closed, self._closed = self._closed, AheadTime()
        return closed


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
        self.pieces = ReadPieces()
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

    def replaced(self) -> None:
        """Note that the context holds something else."""
        self.pieces.cut(0)
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
            is_block = bool(context.exact_batch) and block_room >= context.exact_batch
            lacking = len(tokens) - (start if about is None else held)
            if not is_block and lacking < min(GROUP, context.n_chunk):
                return False
            self.pieces.cut(held)
            if held >= self._whole:  # it only grew, and what was read in groups becomes a block
                self.pieces.read_again(start)
            start = self._go_back(context, start)
            most = self._lengths.choose(context.n_chunk, silence, stops_passes=context.stops_passes)
            least = context.exact_batch if is_block else min(GROUP, most)
            room = block_room if is_block else len(tokens) - start
            if context.exact_batch and not is_block:
                room = min(room, context.exact_batch - GROUP)
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
        return anchor + in_blocks(total - anchor, self._context.facts.exact_batch)

    def _start(self, held: int, end: int, blocks_end: int) -> int:
        """Where to read on from, if so many tokens are held of the first end tokens of a prompt.

        A prompt is read in whole blocks but for its end, which is read in groups. So a block that
        was read in groups is read again once all of it is known, and one that was read as a whole
        if the prompt has no block there.
        """
        context, anchor = self._context, self._anchor
        if anchor is None or held <= anchor or context.facts.state_bytes:
            return held
        if not context.facts.exact_batch:
            return held if held == context.facts.length else held - (held - anchor) % GROUP
        begun = (held - anchor) % context.facts.exact_batch
        blocks = min(held - begun, self._whole)
        if blocks > blocks_end:
            return blocks_end
        is_next_known = blocks + context.facts.exact_batch <= min(end, blocks_end)
        return blocks if held < self._whole or is_next_known else held - begun % GROUP

    def _go_back(self, context: Context, start: int) -> int:
        """Keep so many tokens, or fewer; prepare to come back here. Returns how many are kept."""
        start = context.rollback_to(start)
        context.truncate(start)
        self.pieces.cut(start)
        self._checkpointed, self._whole = min(self._checkpointed, start), min(self._whole, start)
        is_new = self._anchor is None or start < self._anchor
        if is_new:
            self._anchor = self._checkpointed = self._whole = start
        if context.state_bytes:
            context.checkpoint(is_brief=not is_new)
        return start

    def rest(self) -> None:
        """Prepare to come back to where the certain text ends, as nothing more is to be read."""
        facts = self._context.facts
        if facts.state_bytes and facts.length - self._checkpointed >= _WORTHWHILE:
            with self._context.use() as context:
                context.checkpoint()
            self._checkpointed = self._context.facts.length

    def read_along(
        self, tokens: Sequence[int], seconds: float, is_wanted: Callable[[], bool]
    ) -> None:
        """Let drafters read the tokens that the context holds, in pieces of so many seconds."""
        controller = self._controller()
        held = tokens[: common_prefix(self._context.facts.tokens, tokens)]
        if controller is None or not held or (controller, held) == self._drafters_have:
            return
        reading = controller.read_ahead(blind(held), seconds)
        start = common_prefix(self._drafters_have[1], held)
        while is_wanted():
            with self._measured(start, len(held), is_drafters=True):
                if next(reading, None) is None:
                    self._drafters_have = controller, held
                    return

    def hand_over(self, prompt: Sequence[int]) -> int:
        """Leave the context to a reply, as it would be if its prompt were read at once.

        Returns how many tokens of the prompt were read ahead.
        """
        context = self._context
        kept = min(common_prefix(context.facts.tokens, prompt), len(prompt) - 1)
        start = self._start(kept, len(prompt), self._blocks_end(kept, len(prompt)))
        anchor = start if self._anchor is None else self._anchor
        if context.facts.exact_batch and len(prompt) - start == 1 and start - anchor >= GROUP:
            start -= GROUP  # as kernels for a single token may round otherwise
        self.pieces.cut(kept)
        if start < kept and context.facts.rollback_to(start) == start:
            kept = start
            self.pieces.read_again(start)
            with self._context.use() as used:
                used.truncate(start)
        self._anchor, self._drafters_have = None, (None, ())
        return self.pieces.settle(context.facts.rollback_to(kept))

    def change_message(self, tokens: Sequence[int]) -> None:
        """Begin with another message instead, of these tokens; what both share was not in vain."""
        self.pieces.change_message(common_prefix(self._context.facts.tokens, tokens))

    @contextmanager
    def _measured(self, start: int, end: int, *, is_drafters: bool = False) -> Generator[None]:
        """Account for the processor time of the block, which reads these positions."""
        before = time.process_time()
        try:
            yield
        except BaseException:
            self.pieces.lost(time.process_time() - before)
            raise
        spent = time.process_time() - before
        self.pieces.add(start, end, spent, is_drafters=is_drafters)
