"""All answers of a session against plain decoding: small gains and losses show together."""

import math
from dataclasses import dataclass
from typing import Self

from app.engine.reply_metrics import ReplyMetrics
from app.engine.speed.comparison import Comparison, compare


@dataclass(frozen=True, slots=True)
class PooledComparison:
    """Sums over answers; those whose plain speed is unknown are left out."""

    answers: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Decode time."""
    plain_seconds: float = 0.0
    """Decode time that plain decoding would have taken."""
    plain_variance: float = 0.0
    """Square of twice the standard error of that time."""
    is_drafted: bool = False
    """Whether any token was drafted."""

    def with_answer(self, metrics: ReplyMetrics) -> Self:
        """Add an answer that has ended."""
        seconds, speedup = metrics.decode_seconds, metrics.speedup
        if not seconds or speedup is None:
            return self
        error = (metrics.speedup_error or 0.0) * seconds
        return type(self)(
            self.answers + 1,
            self.tokens + metrics.completion_tokens,
            self.seconds + seconds,
            self.plain_seconds + speedup * seconds,
            self.plain_variance + error**2,
            self.is_drafted or metrics.drafted > 0,
        )

    @property
    def comparison(self) -> Comparison:
        """The plain time of all answers over the time they took."""
        speedup = error = None
        if self.seconds:
            speedup = self.plain_seconds / self.seconds
            error = math.sqrt(self.plain_variance) / self.seconds
        return compare(speedup, error, self.tokens, is_drafted=self.is_drafted)
