"""Cost of a pass by its number of tokens: measured once, corrected by every pass.

Where an engine records passes and replays those of one width (CUDA graphs), it depends on the
passes before too: the first two of another width are not replayed.
"""

import math
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from backends.base.model import reads_of_one_token

_DRIFT_RATE = 0.15
"""Share of a surprise that corrects all lengths, so that other load shows within a few passes. A
guess; not measured."""

_SHAPE_RATE = 0.04
"""Share of a surprise that corrects one length: slower, as a single pass shows little about the
shape. A guess; not measured."""

_DOUBTFUL = 0.2
"""Drift in log seconds, seen by drafted passes only, that a plain step has to confirm. A guess; not
measured."""

_LARGEST_DRIFT = 0.5
"""Drift in log seconds beyond which costs are measured again: they are wrong by half. A guess; not
measured."""

_LARGEST_SURPRISE = 0.5
"""Largest surprise that counts, in log seconds, so that one interruption by another program does
not distort the curve. A guess; not measured."""

Held = Mapping[int, Mapping[int, float]]
"""What passes take longer after tokens held than in an empty context, in plain steps of that.

By tokens held, and by number of tokens of the pass.
"""

LEAST_HELD = 2000
"""Tokens held from which that is measured: attention takes too little below. A guess."""

_HELD_STEP = 128
"""Tokens that a context gains until costs are reckoned anew; llama.cpp attends to whole groups of
256 cells."""

WIDTHS = (1, 2, 4, 8, 16, 32, 64)
"""Widths, in tokens, that passes are filled up to where a change of width costs time."""

BUSY = "measured on a busy machine"
"""Label of figures from timings that disagree; another measurement may contradict them."""


class DraftCosts(Protocol):
    """Cost of verifying drafts of each length, beyond a plain step and in plain steps."""

    @property
    def largest(self) -> int:
        """One more than the longest draft whose cost is known."""
        ...

    def of_draft(self, drafted: int) -> float:
        """Extra cost of a step with so many drafted tokens in a row."""
        ...


@dataclass(frozen=True, slots=True)
class TreeSize:
    """Largest size of a drafter's trees: levels, and nodes in all."""

    depth: int
    nodes: int

    def within(self, limit: int) -> Self:
        return replace(self, depth=min(self.depth, limit), nodes=min(self.nodes, limit))


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a calibration.

    seconds: of a pass, by its number of tokens. switching: extra time of a plain step after a pass
    over several tokens, which leaves fewer weights in the caches, in plain steps. unsure: numbers
    of tokens whose timings disagree, each with the relative difference. load: share of the
    processors that other programs used; under a constant load timings agree, but all are slow.
    expert_share: of the experts that one token uses, where passes read theirs from disk, which
    bends the curve between the measured lengths; 0 elsewhere. changes: by number of tokens, seconds
    that a run of such passes after others takes beyond as many in the middle of a run, which
    seconds are of; empty where a change of width costs nothing. held: as far as it was measured.
    """

    seconds: Mapping[int, float]
    switching: float = 0.0
    unsure: Mapping[int, float] = field(default_factory=dict[int, float])
    load: float = 0.0
    expert_share: float = 0.0
    changes: Mapping[int, float] = field(default_factory=dict[int, float])
    held: Held = field(default_factory=dict[int, Mapping[int, float]])

    @property
    def is_steady(self) -> bool:
        """Whether all timings agree."""
        return not self.unsure

    @property
    def spread(self) -> float:
        """Largest relative difference of timings, or the load if larger."""
        return max([self.load, *self.unsure.values()])


class CostModel:
    """Seconds of a pass over n tokens, interpolated between measured points.

    Attention takes time by tokens held and tokens of the pass: see hold. Every pass corrects it: a
    drift that all n share (other load), more slowly the shape of the curve at each n, and the
    surcharge of trees over lines. kept: where changes cost time, the width of the step that is
    planned, to which drafts are compared; else 0.
    """

    def __init__(self, measured: Measured) -> None:
        """Start from a calibration."""
        self.switching = measured.switching
        self.is_steady = measured.is_steady
        self.points = dict(sorted(measured.seconds.items()))
        self._changes = dict(measured.changes)
        self.kept = 0
        self._ran: tuple[int, ...] = ()
        self._first = 0.0
        """Seconds of the first pass of the present width, until the second one is known."""
        lengths = range(1, max(self.points) + 1)
        known = (_interpolated(self.points, n, measured.expert_share) for n in lengths)
        self._empty = np.array([0.0, *known])
        self._held = 0
        self._row: dict[int, float] = {}
        """Cost of a row at best, by how many share passes, as long as the curve is as it is."""
        self.learn_held(measured.held)
        self._filled = [
            next((width for width in self._changes if width >= n), n)
            for n in range(len(self._shape))
        ]
        self.sequences, self.row_price = 1, 0.0
        self._surcharge = 0.0

    def learn_held(self, held: Held) -> None:
        """Replace what is known by tokens held, and what passes corrected: that was part of it."""
        self._depths = [0, *sorted(held)]
        self._extra = np.zeros((len(self._depths), len(self._empty)))
        for row, depth in zip(self._extra, self._depths, strict=True):
            row[:] = _of_widths(held[depth], len(row)) if depth else 0.0
        self._shape = [0.0] * len(self._empty)
        self._drift = self._unconfirmed = self._gap = 0.0
        self._reckon()

    def hold(self, tokens: int) -> None:
        """Let costs be those of passes after so many tokens held, to within a few.

        In proportion beyond the most that was measured; where nothing was, all pass lengths share
        what passes then show.
        """
        if abs(tokens - self._held) >= _HELD_STEP:
            self._held = tokens
            if len(self._depths) > 1:
                self._reckon()

    def _reckon(self) -> None:
        place = min(bisect(self._depths, self._held), len(self._depths) - 1)
        extra = self._extra[place]
        if self._depths[place] > self._held:
            before = self._depths[place - 1]
            share = (self._held - before) / (self._depths[place] - before)
            extra = self._extra[place - 1] + share * (extra - self._extra[place - 1])
        elif place:
            extra = extra * self._held / self._depths[place]
        self._measured = (self._empty + extra * self._empty[1]).tolist()
        plain = self._measured[1]
        self._relative = [
            seconds / plain * math.exp(shape)
            for seconds, shape in zip(self._measured, self._shape, strict=True)
        ]
        self._row.clear()

    @property
    def changes(self) -> Mapping[int, float]:
        """Seconds of a change to each width; empty where it costs nothing, or passes are shared."""
        return {} if self.is_shared else self._changes

    @property
    def largest(self) -> int:
        """The most tokens of a pass whose cost is known."""
        most = max(self._changes) if self._changes else len(self._measured) - 1
        return max(most - self.sequences + 1, 1)

    def begin(self) -> None:
        self._ran = ()

    def share(self, sequences: int, row_price: float = 0.0) -> None:
        """Let costs be those of one of several sequences in a pass, until told otherwise.

        A plain step is then what a token costs where all decode plainly, s(sequences) / sequences;
        and what a draft adds to the pass delays all of them. row_price: what each drafted row of
        the last pass cost, in such steps.
        """
        self.sequences, self.row_price = sequences, row_price

    @property
    def is_shared(self) -> bool:
        return self.sequences > 1

    def _of_share(self, n: int) -> float:
        """Cost of a sequence's n tokens, in the plain steps of one that is alone.

        At best: with as many rows of others in the pass as make a row cheapest. Who shares out the
        rows knows better.
        """
        relative, count = self._relative, min(self.sequences, len(self._relative) - 1)
        plain, further = relative[self.width(count)], range(count + 1, len(relative))
        if n > 1 and count not in self._row:
            prices = ((relative[self.width(m)] - plain) / (m - count) for m in further)
            self._row[count] = max(min(prices, default=math.inf), 0.0)
        return plain / self.sequences + ((n - 1) * self._row[count] if n > 1 else 0.0)

    def width(self, n: int) -> int:
        """Tokens that a pass over n is filled up to: the next width that is known, else n."""
        return self._filled[n] if n < len(self._filled) else n

    def change(self, n: int) -> float:
        """Cost of changing to passes over n tokens, in plain steps; n is one of the widths."""
        return self.changes[n] / self._measured[1] if self.changes else 0.0

    def seconds(self, n: int) -> float:
        """Seconds of a pass over n tokens at present."""
        if self.sequences > 1:
            return self._measured[1] * self.load * self._of_share(n)
        return self._measured[n] * math.exp(self._shape[n] + self._drift)

    @property
    def load(self) -> float:
        """By how much passes take longer than was measured, after as many tokens held."""
        return math.exp(self._drift)

    @property
    def has_drifted(self) -> bool:
        """Whether passes differ so much from the measured ones that a new calibration is due.

        Not where more is held than was ever measured: that is another cost, and no error.
        """
        is_known = self._held < max(LEAST_HELD, 2 * self._depths[-1])
        return is_known and abs(self._drift) > _LARGEST_DRIFT

    def relative(self, n: int) -> float:
        """Cost of a pass over n tokens in plain steps, without drift."""
        return self._of_share(n) / self._of_share(1) if self.sequences > 1 else self._relative[n]

    def of_draft(self, drafted: int) -> float:
        """Extra cost of a step with so many drafted tokens in a row, in plain steps.

        At least 0: that a longer pass takes less time is noise, such as of a disk that weights are
        read from.
        """
        if not drafted:
            return 0.0
        if self.kept:
            return self._beyond_kept(self.width(1 + drafted))
        switching = 0.0 if self.is_shared else self.switching
        return max(self.relative(1 + drafted) - 1.0 + switching, 0.0)

    @property
    def kept_cost(self) -> float:
        """Extra cost of a step of the kept width, whatever is drafted, in plain steps."""
        return self.relative(self.kept) - 1.0 if self.kept else 0.0

    def _beyond_kept(self, width: int) -> float:
        """Extra cost of one step of a larger width than the kept one, there and back."""
        if width <= self.kept:
            return 0.0
        longer = self.relative(width) - self.relative(self.kept)
        back = self.change(self.kept) if self._ran else 0.0  # after a prompt any width is a change
        return longer + self.change(width) + back

    def of_tree(self, drafted: int) -> float:
        """Extra cost of a step over a tree, which may take longer than as many tokens in a row."""
        if not drafted:
            return 0.0
        if self.is_shared:
            return math.inf  # it cannot join the pass of the others
        if self.kept:
            return self._beyond_kept(self.width(1 + drafted))
        extra = self.relative(1 + drafted) * math.exp(self._surcharge) - 1.0 + self.switching
        return max(extra, 0.0)

    def observe(
        self, n: int, seconds: float, *, after_draft: bool = False, is_tree: bool = False
    ) -> None:
        """Correct the curve by a pass over n tokens.

        A slow tree corrects the surcharge of trees only, not the cost of lines. The first two
        passes of a width, where a change costs time, correct what it costs. Nothing is learned of
        one that was shared: see observe_together.
        """
        if self.is_shared:
            return
        before, self._ran = self._ran, (*self._ran[-1:], n)
        if self.changes and before != (n, n):
            self._observe_change(n, seconds, is_first=before[-1:] != (n,))
            return
        if n == 1 and after_draft:
            seconds /= 1.0 + self.switching
        if not 1 <= n <= self.largest or seconds <= 0.0:
            return
        surprise = math.log(seconds / self.seconds(n))
        if is_tree:
            surprise = _bounded(surprise - self._surcharge)
            self._surcharge += _DRIFT_RATE * surprise
            return
        surprise = _bounded(surprise)
        if n > 1:
            self._reshape(n, _SHAPE_RATE * surprise)
            self._drift += _DRIFT_RATE * surprise
            self._unconfirmed += _DRIFT_RATE * surprise
        else:
            self._confirm(surprise)

    def observe_together(self, n: int, seconds: float) -> None:
        """Correct the curve by a pass over n tokens of several sequences."""
        self.share(1)
        self.observe(n, seconds)

    def _observe_change(self, n: int, seconds: float, *, is_first: bool) -> None:
        if is_first:
            self._first = seconds
        elif n in self.changes:
            extra = max(self._first + seconds - 2.0 * self.seconds(n), 0.0)
            most = 2.0 * self._changes[n]  # so that one interruption counts for little
            self._changes[n] += _DRIFT_RATE * (min(extra, most) - self._changes[n])

    def _reshape(self, n: int, change: float) -> None:
        self._shape[n] += change
        self._row.clear()
        self._relative[n] = self._measured[n] / self._measured[1] * math.exp(self._shape[n])

    def _confirm(self, surprise: float) -> None:
        """Apply a plain step: drift that it does not confirm is the shape of longer passes."""
        change = _DRIFT_RATE * surprise
        low, high = min(self._unconfirmed, 0.0), max(self._unconfirmed, 0.0)
        shape = min(max(-change, low), high)
        if shape != 0.0:
            for n in range(2, len(self._shape)):
                self._reshape(n, shape)
        self._drift += change
        self._unconfirmed -= shape
        self._gap = surprise - change
        if abs(self._gap) <= _DOUBTFUL or shape == 0.0:
            self._unconfirmed = 0.0

    @property
    def is_doubtful(self) -> bool:
        """Whether a plain step is needed to tell load on the machine from a steeper curve."""
        return abs(self._unconfirmed) > _DOUBTFUL or abs(self._gap) > _DOUBTFUL


@dataclass(frozen=True, slots=True)
class TreeCosts:
    """Cost of trees of a fixed size, whose nodes all count, however many may be accepted."""

    costs: CostModel
    size: TreeSize

    @property
    def largest(self) -> int:
        return 1 + self.size.depth if self.size.nodes < self.costs.largest else 1

    def of_draft(self, drafted: int) -> float:
        if not drafted:
            return 0.0
        is_line = self.size.nodes == self.size.depth
        of_pass = self.costs.of_draft if is_line else self.costs.of_tree
        return of_pass(self.size.nodes)


@dataclass(frozen=True, slots=True)
class TreePasses:
    costs: CostModel

    @property
    def largest(self) -> int:
        return self.costs.largest

    def of_draft(self, drafted: int) -> float:
        return self.costs.of_tree(drafted)


def _bounded(surprise: float) -> float:
    return max(-_LARGEST_SURPRISE, min(_LARGEST_SURPRISE, surprise))


def _interpolated(points: Mapping[int, float], n: int, expert_share: float) -> float:
    """Interpolation between the measured neighbours of n.

    It is linear in the experts that passes read, without experts in their tokens. Linear in tokens,
    costs between a short and a long pass of a mixture of experts would be far too low. Neighbouring
    tokens agree, so that these come out somewhat too high, and drafts too short rather than too
    long.
    """
    below = max(point for point in points if point <= n)
    above = min(point for point in points if point >= n)
    if below == above:
        return points[n]
    start, here, end = (reads_of_one_token(expert_share, m) for m in (below, n, above))
    if start == end:  # both read all experts
        start, here, end = below, n, above
    share = (here - start) / (end - start)
    return points[below] + share * (points[above] - points[below])


def _of_widths(extra: Mapping[int, float], count: int) -> NDArray[np.float64]:
    """By number of tokens below count, by a few: none less than a shorter pass, on in a line."""
    widths = sorted(extra)
    known = np.maximum.accumulate([max(extra[width], 0.0) for width in widths])
    found = np.interp(np.arange(count), widths, known)
    if len(widths) > 1:
        slope = (known[-1] - known[-2]) / (widths[-1] - widths[-2])
        found += slope * np.maximum(np.arange(count) - widths[-1], 0)
    found[0] = 0.0
    return found


def single_reads(costs: CostModel) -> int:
    """The most tokens that take less time one by one, between single ones, than in one pass."""

    def together(n: int) -> float:
        return costs.relative(n) + costs.change(costs.width(n)) + costs.change(1)

    return max((n for n in range(2, costs.largest + 1) if n < together(n)), default=0)


class DraftCost:
    """Drafting cost: seconds for each drafted token, and for each token to be read first.

    begin_seconds: of a draft whatever its length, such as the one pass of a drafter that proposes
    all tokens of a draft together. is_steady: whether the underlying timings agreed. beside: passes
    of the target, if it shares its device and weights with the drafter: what slows one slows the
    other, also while nothing is drafted. single_reads: the most tokens that are read one by one.
    passes: by number of tokens, where several drafts may share them.
    """

    def __init__(
        self,
        draw_seconds: float,
        read_seconds: float,
        begin_seconds: float = 0.0,
        *,
        is_steady: bool = True,
        beside: CostModel | None = None,
        single_reads: int = 0,
        passes: CostModel | None = None,
    ) -> None:
        self.is_steady = is_steady
        self.passes = passes
        self.single_reads = single_reads
        self._draw, self._read, self._begin = draw_seconds, read_seconds, begin_seconds
        self._beside = beside
        self._before = beside.load if beside else 1.0

    @property
    def draw_seconds(self) -> float:
        return self._draw * self._load

    @property
    def read_seconds(self) -> float:
        return self._read * self._load

    @property
    def begin_seconds(self) -> float:
        return self._begin * self._load

    @property
    def of_token(self) -> float:
        """Seconds of a drafted token, with its share of what a draft costs whatever its length."""
        return self.seconds(1, 1)

    @property
    def _load(self) -> float:
        """By how much the target's passes have become longer since the cost was measured."""
        return self._beside.load / self._before if self._beside else 1.0

    @staticmethod
    def of(measured: Measured, beside: CostModel | None = None) -> "DraftCost":
        """Cost of a drafter model, by a calibration of its passes; beside: as of the class."""
        largest, passes = max(measured.seconds), CostModel(measured)
        reading = measured.seconds[largest] / largest
        singly = single_reads(passes) if measured.changes else 0
        return DraftCost(
            measured.seconds[1],
            reading,
            is_steady=measured.is_steady,
            beside=beside,
            single_reads=singly,
            passes=passes,
        )

    def together(self, count: int) -> float:
        """Seconds of a pass over so many tokens of several drafts."""
        if count <= 1 or self.passes is None:
            return count * self.draw_seconds
        known = min(count, self.passes.largest)
        return self.draw_seconds * self.passes.relative(known) * count / known

    def of_draw(self, costs: CostModel) -> float:
        """Cost of a drafted token in plain steps, of which costs are: at best, where all draft."""
        return self.together(costs.sequences) / costs.sequences / costs.seconds(1)

    def observe_together(self, count: int, seconds: float) -> None:
        """Correct it by a pass over so many tokens of several drafts."""
        if self.passes is not None and (expected := self.together(count)) > 0.0 < seconds:
            self._slow(math.exp(_DRIFT_RATE * _bounded(math.log(seconds / expected))))
            self.passes.observe(count, seconds)

    def seconds(self, drafted: int, backlog: int) -> float:
        """Seconds of a draft after backlog tokens; reading the last one drafts the first token."""
        begin = self.begin_seconds if drafted else 0.0
        read = self.draw_seconds if backlog <= self.single_reads else self.read_seconds
        return begin + drafted * self.draw_seconds + max(backlog - 1, 0) * read

    def observe(self, drafted: int, backlog: int, seconds: float) -> None:
        expected = self.seconds(drafted, backlog)
        if expected <= 0.0 or seconds <= 0.0:
            return
        self._slow(math.exp(_DRIFT_RATE * _bounded(math.log(seconds / expected))))

    def _slow(self, factor: float) -> None:
        self._draw *= factor
        self._read *= factor
        self._begin *= factor
