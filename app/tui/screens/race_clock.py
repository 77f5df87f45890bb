"""One of the two clocks of a race: a bar that grows with the time, and the speed."""

import math
from dataclasses import dataclass

from textual.content import Content

from app.engine.asking.answer import Answer, Stage
from app.tui import wording
from app.tui.screens.dialog import is_narrow

_TITLE, _SECONDS, _RATE = 9, 8, 15
_HALF_SECONDS = 10.0
"""When the first bar is half full while nothing tells how long the answer takes."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock at one moment. seconds: of decoding; None before the first token."""

    title: str
    seconds: float | None
    rate: float | None
    note: str = ""
    """What happens in place of decoding."""
    is_done: bool = False

    @classmethod
    def of(cls, title: str, answer: Answer | None) -> "Clock":
        """The clock of an answer; of None before it began."""
        if answer is None or answer.stage is Stage.QUEUED:
            return cls(title, None, None, "waiting")
        metrics = answer.metrics
        if metrics is None or not metrics.decode_seconds:
            done, total = answer.read
            note = f"reading {100 * done // total} %" if total else "reading"
            return cls(title, None, None, "" if answer.is_done else note, answer.is_done)
        seconds, rate = metrics.decode_seconds, metrics.decode_tokens_per_second
        return cls(title, seconds, rate, is_done=answer.is_done)

    def line(self, width: int, longest: float | None, hue: str) -> Content:
        """The clock in one line; longest: seconds of a full bar, None while nobody knows."""
        is_small = is_narrow(width)
        room = max(width - 2 - _TITLE - _SECONDS - (0 if is_small else _RATE), 0)
        filled = round(room * self._share(longest))
        time = "" if self.seconds is None else f"{self.seconds:.1f} s"
        shown = Content.assemble(
            f" {self.title:<{_TITLE}}", ("█" * filled, hue), " " * (room - filled)
        )
        if self.note:
            return Content.assemble(f" {self.title:<{_TITLE}}", (self.note, "$secondary"))
        text = f"{time:>{_SECONDS}}"
        if not is_small and self.rate is not None:
            text += f"  {wording.rate(self.rate)}"
        return Content.assemble(shown, text).truncate(width)

    def _share(self, longest: float | None) -> float:
        if self.seconds is None:
            return 0.0
        if longest is None:
            return 1.0 - math.exp2(-self.seconds / _HALF_SECONDS)
        return min(self.seconds / longest, 1.0) if longest else 0.0
