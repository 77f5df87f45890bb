"""The figures of the newest answer at one moment, for every widget that shows them."""

from dataclasses import dataclass

from app.engine.asking.answer import Stage
from app.engine.reply_metrics import ReplyMetrics
from app.engine.speed.comparison import PLAIN, Comparison


@dataclass(frozen=True, slots=True)
class Second:
    """One second of decoding: its rate in tokens a second, and its main drafter, empty if none."""

    rate: float
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """Figures of an answer; metrics: None before the first one has any."""

    metrics: ReplyMetrics | None = None
    stage: Stage | None = None
    read: tuple[int, int] = (0, 0)
    """Prompt tokens read so far, and in all."""
    rate: float | None = None
    """Tokens a second: over the last seconds while answering, then over the whole answer."""
    plain: float | None = None
    """Tokens a second of plain decoding, the last that is known of this model."""
    comparison: Comparison = PLAIN
    minute: tuple[Second, ...] = ()
    """The last minute, oldest second first."""
    session: Comparison = PLAIN
    """All answers of this session together."""
    answers: int = 0
    """Answers that the session's comparison covers."""
