"""Mean of durations whose noise lasts: a busy moment slows many steps that follow each other."""

import math
from dataclasses import dataclass, field

_MOST_BLOCKS = 8
_FEWEST_BLOCKS = 4


@dataclass(slots=True)
class BatchMeans:
    """Durations in seconds, averaged in four to eight blocks as long as the series allows.

    Their scatter shows the noise that lasts; the scatter of single durations would hide it.
    """

    count: int = 0
    total: float = 0.0
    _blocks: list[float] = field(default_factory=list[float])
    """Sums of complete blocks."""
    _size: int = 1
    """Durations of a block."""
    _open: float = 0.0
    """Sum of the incomplete block."""

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self.count += 1
        self.total += seconds
        self._open += seconds
        if self.count % self._size:
            return
        self._blocks.append(self._open)
        self._open = 0.0
        if len(self._blocks) == _MOST_BLOCKS:
            pairs = zip(self._blocks[::2], self._blocks[1::2], strict=True)
            self._blocks = [first + second for first, second in pairs]
            self._size *= 2

    @property
    def error(self) -> float | None:
        """Standard error of the mean, relative to it; None for a short series."""
        count = len(self._blocks)
        if count < _FEWEST_BLOCKS or self.total <= 0.0:
            return None
        mean = sum(self._blocks) / count
        variance = sum((block - mean) ** 2 for block in self._blocks) / (count - 1)
        return math.sqrt(variance / count) / mean

    @property
    def noise(self) -> float | None:
        """The error that a mean over one second would have: it falls with the root of the time."""
        return None if self.error is None else self.error * math.sqrt(self.total)
