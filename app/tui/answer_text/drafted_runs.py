"""Which parts of an answer drafters supplied, and when."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from textual.content import Span

from app.engine.asking.answer import Piece
from app.tui.look.hues import Kind, kind_of
from decoding.events import Origin

_FULL_SECONDS = 1.0
_HALF_SECONDS = 2.0

_OWN = frozenset(Origin)
"""Origins of tokens that the model supplied itself."""


@dataclass(frozen=True, slots=True)
class Run:
    """Text from start to end that a drafter supplied; at: when it was shown, in seconds."""

    start: int
    end: int
    kind: Kind
    at: float


@dataclass(frozen=True, slots=True)
class Coloured:
    """Parts of an answer that have a hue, in order and without overlaps."""

    parts: Sequence[Span]

    def between(self, start: int, end: int) -> Sequence[Span]:
        """Parts that overlap a range."""
        first = bisect_right(self.parts, start, key=attrgetter("end"))
        last = bisect_left(self.parts, end, key=attrgetter("start"))
        return self.parts[first:last]


class DraftedRuns:
    """Drafted parts of an answer, in order."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._faded = 0
        """How many runs, from the first, have no hue any more."""

    def add(self, pieces: Iterable[Piece], start: int, at: float) -> None:
        """Note the drafted ones of the pieces that follow a position of the text."""
        for piece in pieces:
            end = start + len(piece.text)
            if piece.origin not in _OWN and piece.text:
                self._add(Run(start, end, kind_of(piece.origin), at))
            start = end

    def _add(self, run: Run) -> None:
        last = self._runs[-1] if self._runs else None
        if last is not None and (last.end, last.kind, last.at) == (run.start, run.kind, run.at):
            self._runs[-1] = Run(last.start, run.end, run.kind, run.at)
        else:
            self._runs.append(run)

    def fresh(self, now: float) -> Coloured:
        """What is coloured at a time: for a second fully, for another one half."""
        while self._faded < len(self._runs) and now - self._runs[self._faded].at >= _HALF_SECONDS:
            self._faded += 1
        return Coloured(
            [Span(run.start, run.end, _style(run, now)) for run in self._runs[self._faded :]]
        )

    def all(self, start: int = 0) -> Coloured:
        """Everything that was drafted from a position on, in its full hue."""
        first = bisect_right(self._runs, start, key=attrgetter("end"))
        return Coloured([Span(run.start, run.end, run.kind.hue) for run in self._runs[first:]])


def _style(run: Run, now: float) -> str:
    return run.kind.hue if now - run.at < _FULL_SECONDS else run.kind.fading
